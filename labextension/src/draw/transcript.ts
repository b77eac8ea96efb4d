/** The items in their order: nested under the calls they belong to, reads next to each other as one line. */

import { AskView } from './ask';
import { arrange, h, icon, setText } from './dom';
import {
  AgentView,
  CompactionView,
  ErrorView,
  NoticeView,
  ReasoningView,
  RetryView,
  TextView,
  TodoView
} from './lines';
import { QuestionView } from './question';
import type { Item, ToolItem } from './record';
import { ReviewView } from './review';
import { ToolView } from './tool';
import type { Context, ItemView } from './view';

function make(item: Item, context: Context): ItemView | null {
  switch (item.kind) {
    case 'text':
      return new TextView(item) as ItemView;
    case 'reasoning':
      return new ReasoningView(item) as ItemView;
    case 'tool':
      return new ToolView(item, context) as ItemView;
    case 'ask':
      return new AskView(item, context) as ItemView;
    case 'question':
      return new QuestionView(item, context) as ItemView;
    case 'review':
      return new ReviewView(item, context) as ItemView;
    case 'notice':
      return new NoticeView(item) as ItemView;
    case 'retry':
      return new RetryView(item, context) as ItemView;
    case 'compaction':
      return new CompactionView(item) as ItemView;
    case 'agent':
      return new AgentView(item) as ItemView;
    case 'todo':
      return new TodoView(item, context) as ItemView;
    case 'error':
      return new ErrorView(item) as ItemView;
    default:
      return null;
  }
}

interface Entry {
  item: Item;
  view: ItemView;
  grouped: boolean;
}

/** Calls that only look are shown together, unless something about them wants to be seen. */
function groups(item: Item): boolean {
  return item.kind === 'tool' && item.effect === 'reads' && !item.refused && item.state !== 'error';
}

/** `read 6 files, searched twice`. */
export function groupTitle(items: readonly ToolItem[]): string {
  const counts = new Map<string, number>();
  for (const item of items) {
    const kind =
      item.name === 'read' || item.name === 'list'
        ? item.name
        : item.name === 'grep' || item.name === 'glob' || item.name === 'websearch'
          ? 'search'
          : 'look';
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const words = Array.from(counts, ([kind, n]) => {
    switch (kind) {
      case 'read':
        return `read ${n} ${n === 1 ? 'file' : 'files'}`;
      case 'list':
        return `listed ${n} ${n === 1 ? 'folder' : 'folders'}`;
      case 'search':
        return n === 1 ? 'searched once' : n === 2 ? 'searched twice' : `searched ${n} times`;
      default:
        return `looked at ${n} more ${n === 1 ? 'thing' : 'things'}`;
    }
  }).join(', ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

class Group {
  private readonly title = h('span', { class: 'nba-tool-title nba-group-title' });
  private readonly mark = h('span', { class: 'nba-mark' });
  private readonly list = h('div', { class: 'nba-items nba-nested' });
  readonly element = h(
    'details',
    { class: 'nba-tool nba-group' },
    h(
      'summary',
      { class: 'nba-tool-head' },
      h('span', { class: 'nba-tool-icon' }, icon('read')),
      this.title,
      this.mark
    ),
    this.list
  );

  update(members: Entry[]): void {
    const items = members.map(member => member.item as ToolItem);
    setText(this.title, groupTitle(items));
    const busy = items.some(item => item.state !== 'completed');
    if (this.mark.dataset.busy !== String(busy)) {
      this.mark.dataset.busy = String(busy);
      this.mark.replaceChildren(
        busy ? h('span', { class: 'nba-spinner', 'aria-hidden': true }) : icon('check'),
        h('span', { class: 'nba-sr' }, busy ? 'running' : 'done')
      );
    }
    arrange(
      this.list,
      members.map(member => member.view.element)
    );
  }
}

/** Items with the same parent, in one element. */
class Container {
  readonly entries: Entry[] = [];
  private readonly groups = new Map<string, Group>();
  stale = false;

  constructor(readonly element: HTMLElement) {}

  layout(): void {
    this.stale = false;
    const shown: HTMLElement[] = [];
    let run: Entry[] = [];
    const close = (): void => {
      if (run.length === 1) {
        shown.push(run[0].view.element);
      } else if (run.length > 1) {
        const key = run[0].item.id;
        const group = this.groups.get(key) ?? new Group();
        this.groups.set(key, group);
        group.update(run);
        shown.push(group.element);
      }
      run = [];
    };
    for (const entry of this.entries) {
      if (entry.grouped) {
        run.push(entry);
      } else {
        close();
        shown.push(entry.view.element);
      }
    }
    close();
    arrange(this.element, shown);
  }
}

export class Transcript {
  readonly element = h('div', { class: 'nba-items' });
  private readonly entries = new Map<string, Entry>();
  private readonly containers = new Map<string, Container>([['', new Container(this.element)]]);
  private readonly home = new Map<string, Container>();

  constructor(private readonly context: Context) {}

  view(id: string): ItemView | undefined {
    return this.entries.get(id)?.view;
  }

  /** Draws new items and changed ones; the rest is not touched. */
  draw(items: readonly Item[]): void {
    for (const item of items) {
      const entry = this.entries.get(item.id);
      if (entry && entry.item.kind === item.kind) {
        entry.item = item;
        entry.view.update(item);
        this.regroup(entry);
      } else if (!entry) {
        this.add(item);
      }
    }
    for (const container of this.containers.values()) {
      if (container.stale) {
        container.layout();
      }
    }
  }

  /** Takes away what a new whole record no longer has. */
  keep(ids: ReadonlySet<string>): void {
    for (const [id, entry] of Array.from(this.entries)) {
      if (ids.has(id)) {
        continue;
      }
      entry.view.dispose?.();
      entry.view.element.remove();
      this.entries.delete(id);
      const container = this.home.get(id);
      if (container) {
        container.entries.splice(container.entries.indexOf(entry), 1);
        container.stale = true;
      }
      this.home.delete(id);
      this.containers.delete(id);
    }
  }

  /** Every card looks again whether it can be answered. */
  refresh(): void {
    for (const entry of this.entries.values()) {
      entry.view.update(entry.item);
    }
  }

  dispose(): void {
    for (const entry of this.entries.values()) {
      entry.view.dispose?.();
    }
  }

  private add(item: Item): void {
    const view = make(item, this.context);
    if (!view) {
      return;
    }
    view.element.dataset.id = item.id;
    const entry = { item, view, grouped: groups(item) };
    this.entries.set(item.id, entry);
    const container = this.containerOf(item.parent ?? '');
    container.entries.push(entry);
    container.stale = true;
    this.home.set(item.id, container);
  }

  private regroup(entry: Entry): void {
    const container = this.home.get(entry.item.id);
    if (!container) {
      return;
    }
    const grouped = groups(entry.item) && !this.containers.has(entry.item.id);
    if (grouped !== entry.grouped || grouped) {
      entry.grouped = grouped;
      container.stale = true;
    }
  }

  private containerOf(parent: string): Container {
    const known = this.containers.get(parent);
    if (known) {
      return known;
    }
    const owner = this.entries.get(parent);
    const element = owner?.view.nest?.();
    if (!owner || !element) {
      return this.containers.get('') as Container;
    }
    const container = new Container(element);
    this.containers.set(parent, container);
    owner.grouped = false;
    (this.home.get(parent) as Container).stale = true;
    return container;
  }
}
