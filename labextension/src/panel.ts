/** The side panel: the plan, the todo list, changed files and changed cells of the notebook in front. */

import type { ITranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { CellChange } from './cells';
import { colour } from './draw/colour';
import { drawDiff } from './draw/diff';
import { h } from './draw/dom';
import { drawTodos, isBound } from './draw/lines';
import { markdown } from './draw/markdown';
import { drawFile } from './draw/receipt';
import type { ChangedFile, Record_ } from './draw/record';

export interface PanelHost {
  openFile(path: string, root: string): void;
  showCell(id: string): void;
  /** Takes one change of a cell back; a sentence when that is refused. */
  putBack(change: CellChange): string;
}

/** Files changed so far: the receipt's, or while the run goes on those of its finished edits. */
export function changedFiles(record: Record_): ChangedFile[] {
  if (record.receipt) {
    return record.receipt.files ?? [];
  }
  const files = new Map<string, ChangedFile>();
  for (const item of record.items) {
    if (item.kind !== 'tool' || item.state !== 'completed' || typeof item.metadata?.diff !== 'string') {
      continue;
    }
    const path = String(item.input.filePath ?? item.input.path ?? item.title);
    const before = files.get(path);
    const diff = (before?.diff ?? '') + item.metadata.diff;
    const lines = item.metadata.diff.split('\n');
    files.set(path, {
      path,
      status: before?.status ?? (item.metadata.diff.includes('--- /dev/null') ? 'added' : 'modified'),
      additions: (before?.additions ?? 0) + lines.filter(line => /^\+(?!\+\+ )/.test(line)).length,
      deletions: (before?.deletions ?? 0) + lines.filter(line => /^-(?!-- )/.test(line)).length,
      diff
    });
  }
  return [...files.values()];
}

/** A unified diff of two short texts (whole lines, common ends left out). */
export function lineDiff(before: string, after: string): string {
  const old = before === '' ? [] : before.split('\n');
  const now = after === '' ? [] : after.split('\n');
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) {
    start++;
  }
  let tail = 0;
  while (
    tail < old.length - start &&
    tail < now.length - start &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  ) {
    tail++;
  }
  const from = Math.max(0, start - 3);
  const after_ = Math.min(3, tail);
  const same = old.slice(from, start).map(line => ` ${line}`);
  const gone = old.slice(start, old.length - tail).map(line => `-${line}`);
  const come = now.slice(start, now.length - tail).map(line => `+${line}`);
  const end = old.slice(old.length - tail, old.length - tail + after_).map(line => ` ${line}`);
  const oldCount = same.length + gone.length + end.length;
  const newCount = same.length + come.length + end.length;
  return [`@@ -${from + 1},${oldCount} +${from + 1},${newCount} @@`, ...same, ...gone, ...come, ...end].join('\n');
}

export class SidePanel extends Widget {
  private readonly body = h('div', { class: 'nba nba-panel-body' });
  private drawn = '';
  private record: Record_ | null = null;
  private changes: readonly CellChange[] = [];
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readonly trans;

  constructor(
    translator: ITranslator,
    private readonly host: PanelHost
  ) {
    super();
    this.trans = translator.load('nbagent');
    this.addClass('nba-SidePanel');
    this.node.append(this.body);
    this.draw();
  }

  show_(record: Record_ | null, changes: readonly CellChange[]): void {
    this.record = record;
    this.changes = changes;
    // a run tells many times a second; a panel is read slower
    this.timer ??= setTimeout(() => {
      this.timer = null;
      if (!this.isDisposed && this.isVisible) {
        this.draw();
      }
    }, 300);
  }

  protected onAfterShow(): void {
    this.draw();
  }

  dispose(): void {
    if (this.timer !== null) {
      clearTimeout(this.timer);
    }
    super.dispose();
  }

  private draw(): void {
    const { record, changes } = this;
    const plan = record?.items.filter(item => item.kind === 'review').at(-1);
    const todo = record?.items.filter(item => item.kind === 'todo').at(-1);
    const files = record ? changedFiles(record) : [];
    const key = JSON.stringify([
      record?.head.badge,
      record?.head.title,
      record?.state,
      plan,
      todo,
      files,
      changes.length
    ]);
    if (key === this.drawn) {
      return;
    }
    this.drawn = key;
    const parts: HTMLElement[] = [];
    if (!record) {
      parts.push(
        h(
          'p',
          { class: 'nba-small' },
          this.trans.__(
            'Run a %1 or %2 cell, and its plan, todo list and changed files show here.',
            '%%plan',
            '%%build'
          )
        )
      );
    } else {
      const badge = h(
        'span',
        { class: 'nba-badge', 'data-bound': isBound(record.head.writes) ? 'yes' : 'no' },
        record.head.badge
      );
      parts.push(
        h(
          'div',
          { class: 'nba-panel-head' },
          badge,
          h('strong', { dir: 'auto' }, record.head.title || record.head.model)
        )
      );
    }
    if (record && (plan || record.head.plan)) {
      parts.push(this.plan(record, plan?.path ?? record.head.plan, plan?.text ?? '', plan?.status ?? ''));
    }
    if (todo?.todos.length) {
      parts.push(section(this.trans.__('Todo'), drawTodos(todo.todos)));
    }
    if (record && files.length) {
      const open = { send: () => undefined, openFile: (path: string) => this.host.openFile(path, record.head.root) };
      parts.push(section(this.trans.__('Changed files'), ...files.map(file => drawFile(file, open))));
    }
    if (changes.length) {
      parts.push(section(this.trans.__('Changed cells'), ...changes.map(change => this.cell(change))));
    }
    this.body.replaceChildren(...parts);
  }

  private plan(record: Record_, path: string, text: string, status: string): HTMLElement {
    const open = h(
      'button',
      { type: 'button', class: 'nba-link', onclick: () => this.host.openFile(path, record.head.root) },
      path
    );
    const state = status ? h('span', { class: 'nba-chip' }, status) : null;
    const shown = h('div', {
      class: 'nba-md nba-boxed',
      tabindex: 0,
      dir: 'auto',
      role: 'region',
      'aria-label': 'Plan'
    });
    shown.append(markdown(text));
    const head = h('div', { class: 'nba-panel-head' }, open, state);
    return text ? section(this.trans.__('Plan'), head, shown) : section(this.trans.__('Plan'), head);
  }

  private cell(change: CellChange): HTMLElement {
    const body = h('div', { class: 'nba-tool-body' });
    const status = h('div', { class: 'nba-status', role: 'status' });
    const back = h(
      'button',
      {
        type: 'button',
        class: 'nba-button',
        onclick: () => {
          const refused = this.host.putBack(change);
          status.textContent = refused || this.trans.__('Put back.');
          back.disabled = !refused;
        }
      },
      this.trans.__('Put back')
    );
    const go = h(
      'button',
      { type: 'button', class: 'nba-button', onclick: () => this.host.showCell(change.id) },
      this.trans.__('Show')
    );
    const details = h(
      'details',
      {
        class: 'nba-tool',
        ontoggle: () => {
          if (details.open && !body.firstChild) {
            const shown =
              change.before === change.after
                ? plainCode(change.after)
                : drawDiff(lineDiff(change.before, change.after), 'cell.py', `Cell ${change.id}`);
            body.append(shown, h('div', { class: 'nba-buttons nba-controls' }, go, back), status);
          }
        }
      },
      h(
        'summary',
        { class: 'nba-tool-head' },
        h('span', { class: 'nba-tool-name' }, change.kind),
        h('code', { class: 'nba-tool-title' }, change.id)
      ),
      body
    );
    return details;
  }
}

function plainCode(text: string): HTMLElement {
  const code = h('code');
  code.append(colour(text, 'python'));
  return h('pre', { class: 'nba-code', tabindex: 0 }, code);
}

function section(title: string, ...content: HTMLElement[]): HTMLElement {
  return h('section', { class: 'nba-panel-section' }, h('h3', { class: 'nba-label' }, title), ...content);
}
