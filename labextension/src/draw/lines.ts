/** The small items: text, thoughts, notices, retries, compaction, a change of agent, the todo list, errors. */

import { count, duration, h, icon, setText, show } from './dom';
import { Stream } from './markdown';
import type {
  AgentItem,
  CompactionItem,
  ErrorItem,
  NoticeItem,
  ReasoningItem,
  RetryItem,
  TextItem,
  TodoItem
} from './record';
import type { Context, ItemView } from './view';

export class TextView implements ItemView<TextItem> {
  private readonly stream = new Stream('nba-md nba-text');
  readonly element = this.stream.element;

  constructor(item: TextItem) {
    this.update(item);
  }

  update(item: TextItem): void {
    this.stream.update(item.text);
    show(this.element, item.text.trim() !== '');
  }
}

export class ReasoningView implements ItemView<ReasoningItem> {
  private readonly stream = new Stream('nba-md nba-thought');
  private readonly hint = h('span', { class: 'nba-tool-title', dir: 'auto' });
  private text = '';
  readonly element = h(
    'details',
    { class: 'nba-tool nba-reasoning', ontoggle: () => this.draw() },
    h(
      'summary',
      { class: 'nba-tool-head' },
      h('span', { class: 'nba-tool-icon' }, icon('think')),
      h('span', { class: 'nba-tool-name' }, 'Thought'),
      this.hint
    ),
    this.stream.element
  );

  constructor(item: ReasoningItem) {
    this.update(item);
  }

  update(item: ReasoningItem): void {
    this.text = item.text;
    const first = item.text.trimStart().split('\n', 1)[0] ?? '';
    setText(this.hint, first.replace(/[*_`#]/g, '').slice(0, 160));
    show(this.element, item.text.trim() !== '');
    this.draw();
  }

  private draw(): void {
    if (this.element.open) {
      this.stream.update(this.text);
    }
  }
}

export class NoticeView implements ItemView<NoticeItem> {
  private readonly text = h('span', { dir: 'auto' });
  readonly element = h('div', { class: 'nba-line' });

  constructor(item: NoticeItem) {
    this.element.append(icon(item.level === 'warning' ? 'warn' : 'info'), this.text);
    this.update(item);
  }

  update(item: NoticeItem): void {
    this.element.dataset.level = item.level === 'warning' ? 'warning' : 'info';
    setText(this.text, item.text);
  }
}

export class RetryView implements ItemView<RetryItem> {
  private readonly text = h('span', { dir: 'auto' });
  private readonly clock = h('span', { class: 'nba-facts' });
  private timer: ReturnType<typeof setInterval> | null = null;
  readonly element = h('div', { class: 'nba-line', 'data-level': 'warning' }, icon('retry'), this.text, this.clock);

  constructor(
    item: RetryItem,
    private readonly context: Context
  ) {
    this.update(item);
  }

  update(item: RetryItem): void {
    setText(this.text, `Try ${item.attempt} failed: ${item.error}`);
    this.dispose();
    if (item.done || this.context.over()) {
      setText(this.clock, 'tried again');
      return;
    }
    // counted from now: the kernel's clock may differ from the page's
    const until = performance.now() + item.wait * 1000;
    const tick = (): void => {
      const left = Math.ceil((until - performance.now()) / 1000);
      setText(this.clock, left > 0 ? `again in ${duration(left)}` : 'trying again…');
    };
    tick();
    this.timer = setInterval(tick, 1000);
  }

  dispose(): void {
    if (this.timer !== null) {
      clearInterval(this.timer);
      this.timer = null;
    }
  }
}

export class CompactionView implements ItemView<CompactionItem> {
  private readonly stream = new Stream('nba-md nba-thought');
  private readonly text = h('span', { class: 'nba-tool-title', dir: 'auto' });
  private summary = '';
  readonly element = h(
    'details',
    { class: 'nba-tool', ontoggle: () => this.draw() },
    h('summary', { class: 'nba-tool-head' }, h('span', { class: 'nba-tool-icon' }, icon('shrink')), this.text),
    this.stream.element
  );

  constructor(item: CompactionItem) {
    this.update(item);
  }

  update(item: CompactionItem): void {
    this.summary = item.summary || item.error || 'No summary yet.';
    const sizes = item.before ? ` ${count(item.before)} → ${count(item.after)} tokens` : '';
    setText(
      this.text,
      item.error
        ? `The history could not be summarised: ${item.error}`
        : item.summary
          ? `The history was summarised${sizes}`
          : 'Summarising the history…'
    );
    this.element.dataset.state = item.error ? 'error' : '';
    this.draw();
  }

  private draw(): void {
    if (this.element.open) {
      this.stream.update(this.summary);
    }
  }
}

export class AgentView implements ItemView<AgentItem> {
  private readonly badge = h('span', { class: 'nba-badge' });
  private readonly text = h('span', { class: 'nba-small', dir: 'auto' });
  readonly element = h('div', { class: 'nba-change', role: 'separator' }, this.badge, this.text);

  constructor(item: AgentItem) {
    this.update(item);
  }

  update(item: AgentItem): void {
    setText(this.badge, item.badge || item.agent);
    this.badge.dataset.bound = isBound(item.writes) ? 'yes' : 'no';
    setText(this.text, item.writes);
    this.element.setAttribute('aria-label', `From here: ${item.badge || item.agent}. ${item.writes}`);
  }
}

/** Whether an agent may write little or nothing (its data says "only writes …" or "writes nothing"). */
export function isBound(writes: string): boolean {
  return /^(only|no|none|nothing|writes nothing)\b/i.test(writes.trim());
}

const TICKS: Record<string, string> = { completed: '✓', in_progress: '▸', cancelled: '×' };
const TICK_WORDS: Record<string, string> = { completed: 'done', in_progress: 'under way', cancelled: 'cancelled' };

/** The todo list as a list. */
export function drawTodos(todos: { content: string; status: string }[]): HTMLElement {
  const list = h('ul', { class: 'nba-todos' });
  for (const todo of todos) {
    list.append(
      h(
        'li',
        { 'data-status': todo.status, dir: 'auto' },
        h('span', { class: 'nba-tick', 'aria-hidden': true }, TICKS[todo.status] ?? '○'),
        h('span', {}, todo.content),
        h('span', { class: 'nba-sr' }, `(${TICK_WORDS[todo.status] ?? 'to do'})`)
      )
    );
  }
  return list;
}

export class TodoView implements ItemView<TodoItem> {
  private readonly text = h('span', { class: 'nba-tool-title' });
  private readonly list = h('div');
  readonly element = h(
    'details',
    { class: 'nba-tool nba-todo', open: true },
    h(
      'summary',
      { class: 'nba-tool-head' },
      h('span', { class: 'nba-tool-icon' }, icon('list')),
      h('span', { class: 'nba-tool-name' }, 'Todo'),
      this.text
    ),
    this.list
  );

  constructor(
    item: TodoItem,
    private readonly context: Context
  ) {
    this.update(item);
  }

  update(item: TodoItem): void {
    if (this.context.over()) {
      this.element.open = false; // open while there is something to do
    }
    const done = item.todos.filter(todo => todo.status === 'completed').length;
    const now = item.todos.find(todo => todo.status === 'in_progress');
    setText(this.text, `${done} of ${item.todos.length} done${now ? ` · ${now.content}` : ''}`);
    this.list.replaceChildren(drawTodos(item.todos));
  }
}

export class ErrorView implements ItemView<ErrorItem> {
  private readonly text = h('span', { dir: 'auto' });
  readonly element = h('div', { class: 'nba-line', 'data-level': 'error', role: 'alert' }, icon('cross'), this.text);

  constructor(item: ErrorItem) {
    this.update(item);
  }

  update(item: ErrorItem): void {
    setText(this.text, item.message);
  }
}
