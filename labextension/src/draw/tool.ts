/** One tool call: a card that opens on its arguments, its output or its diff. */

import { ruleText } from './ask';
import { colour, languageOf } from './colour';
import { drawDiff, tally } from './diff';
import { brief, count, h, icon, setText, show } from './dom';
import { markdown } from './markdown';
import type { ToolItem } from './record';
import type { Context, ItemView } from './view';

const ICONS: Record<string, string> = {
  read: 'read',
  list: 'list',
  glob: 'search',
  grep: 'search',
  write: 'write',
  edit: 'write',
  multiedit: 'write',
  apply_patch: 'write',
  bash: 'shell',
  python: 'code',
  inspect: 'code',
  webfetch: 'globe',
  websearch: 'globe',
  task: 'agent',
  todowrite: 'list',
  todoread: 'list',
  question: 'ask',
  plan_exit: 'plan',
  plan_enter: 'plan',
  notebook_read: 'notebook',
  notebook_edit: 'notebook'
};

const BY_EFFECT: Record<string, string> = {
  reads: 'read',
  writes: 'write',
  command: 'shell',
  code: 'code',
  outside: 'globe',
  asks: 'ask'
};

const STATES: Record<string, string> = {
  writing: 'being written',
  pending: 'waiting',
  running: 'running',
  completed: 'done',
  error: 'failed'
};

/** Longer texts are shown from their end; the whole is one press away. */
const SHOWN = 30_000;

const ANSI = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

export function iconOf(item: ToolItem): string {
  return ICONS[item.name] ?? BY_EFFECT[item.effect] ?? 'tool';
}

export class ToolView implements ItemView<ToolItem> {
  readonly element: HTMLElement;
  private readonly summary = h('summary', { class: 'nba-tool-head' });
  private readonly mark = h('span', { class: 'nba-mark' });
  private readonly title = h('span', { class: 'nba-tool-title', dir: 'auto' });
  private readonly facts = h('span', { class: 'nba-facts' });
  private readonly refusal = h('div', { class: 'nba-refusal', dir: 'auto' });
  private readonly details: HTMLDetailsElement;
  private readonly body = h('div', { class: 'nba-tool-body' });
  private children: HTMLElement | null = null;
  private drawnBody = '';
  private drawnState = '';
  private asked = false;
  private pictured = false;
  private stream: { text: Text; length: number } | null = null;

  constructor(
    private item: ToolItem,
    private readonly context: Context
  ) {
    this.summary.append(
      h('span', { class: 'nba-tool-icon' }, icon(iconOf(item))),
      h('span', { class: 'nba-tool-name' }, item.name),
      this.title,
      this.facts,
      this.mark
    );
    this.details = h('details', { class: 'nba-tool', ontoggle: () => this.drawBody() }, this.summary, this.body);
    this.element = h('div', { class: 'nba-tool-frame' }, this.details, this.refusal);
    this.update(item);
  }

  update(item: ToolItem): void {
    // a rule refused it, or the person, who is quoted where they answered
    const state = item.refused || item.metadata.refused === true ? 'refused' : item.state;
    const before = this.drawnState;
    this.item = item;
    if (item.cut === false || !item.cut) {
      this.asked = false;
    }
    if (state !== before) {
      this.drawnState = state;
      this.element.dataset.state = state;
      this.drawMark(state);
      show(this.refusal, item.refused);
      if (item.refused) {
        this.drawRefusal();
        this.context.announce(`Refused: ${item.name} ${item.title}`);
      }
      if (this.children && (state === 'completed' || state === 'error')) {
        this.details.open = false;
      }
    }
    // the list itself stands in the transcript
    show(this.element, !(item.name === 'todowrite' && state === 'completed'));
    if (item.images?.length && !this.pictured) {
      this.pictured = true;
      this.details.open = true;
    }
    setText(this.title, this.titleText());
    this.title.title = this.title.textContent ?? '';
    setText(this.facts, this.factsText());
    if (this.details.open) {
      this.drawBody();
    }
  }

  nest(): HTMLElement {
    if (!this.children) {
      this.children = h('div', { class: 'nba-items nba-nested', role: 'group', 'aria-label': 'Subagent' });
      this.details.insertBefore(this.children, this.body);
      this.details.open = this.item.state !== 'completed' && this.item.state !== 'error';
    }
    return this.children;
  }

  private titleText(): string {
    const { item } = this;
    if (item.title && item.title !== item.name) {
      // a title often begins with the tool's name, which stands before it already
      return item.title.startsWith(`${item.name} `) ? item.title.slice(item.name.length + 1) : item.title;
    }
    if (item.state === 'writing') {
      return item.size ? `${count(item.size)} characters so far` : '';
    }
    const first = ['filePath', 'path', 'command', 'code', 'pattern', 'query', 'url', 'description', 'name']
      .map(key => text(item.input[key]))
      .find(Boolean);
    return (first ?? '').split('\n')[0].slice(0, 200);
  }

  private factsText(): string {
    const { item } = this;
    const facts: string[] = [];
    const diff = text(item.metadata.diff);
    if (diff && !item.refused) {
      const { additions, deletions } = tally(diff);
      facts.push(`+${additions} −${deletions}`);
    }
    const exit = item.metadata.exit;
    if (typeof exit === 'number' && exit !== 0) {
      facts.push(`exit ${exit}`);
    }
    if (typeof item.seconds === 'number' && item.seconds >= 0.1) {
      facts.push(brief(item.seconds));
    }
    return facts.join(' · ');
  }

  private drawMark(state: string): void {
    const name = state === 'completed' ? 'check' : state === 'error' ? 'cross' : state === 'refused' ? 'forbid' : '';
    const cut = state === 'error' && this.item.error.startsWith('interrupted');
    const word = state === 'refused' ? 'refused' : cut ? 'interrupted' : (STATES[state] ?? state);
    this.mark.replaceChildren(
      name ? icon(name) : h('span', { class: 'nba-spinner', 'aria-hidden': true }),
      h('span', { class: state === 'refused' || state === 'error' ? 'nba-mark-word' : 'nba-sr' }, word)
    );
    this.mark.title = word;
  }

  private drawRefusal(): void {
    const { rule, error } = this.item;
    this.refusal.replaceChildren();
    if (rule) {
      this.refusal.append('Refused by the rule ', h('code', { dir: 'ltr' }, ruleText(rule)));
    } else {
      this.refusal.append(error || 'Refused');
    }
  }

  /** Draws what the open card shows; a closed card costs nothing. */
  private drawBody(): void {
    if (!this.details.open) {
      return;
    }
    const { item } = this;
    if (item.cut && !this.asked && this.context.live()) {
      this.asked = true;
      this.context.host.send({ kind: 'fetch', id: item.id });
    }
    if (this.follow()) {
      return;
    }
    // what a subagent does is shown instead of what it was told
    show(this.body, !(this.children && (item.state === 'running' || item.state === 'pending')));
    const key = [item.state, item.output.length, item.error.length, item.cut, text(item.metadata.diff).length].join(
      '|'
    );
    if (key === this.drawnBody) {
      return;
    }
    this.drawnBody = key;
    this.stream = null;
    this.body.replaceChildren(...this.sections());
  }

  /** Output that only grew is appended to. */
  private follow(): boolean {
    const { item, stream } = this;
    if (!stream || item.state !== 'running' || item.output.length < stream.length) {
      return false;
    }
    if (item.output.length > stream.length) {
      stream.text.appendData(item.output.slice(stream.length).replace(ANSI, ''));
      stream.length = item.output.length;
      if (stream.text.length > 2 * SHOWN) {
        stream.text.deleteData(0, stream.text.length - SHOWN);
      }
      const frame = stream.text.parentElement?.parentElement;
      if (frame) {
        frame.scrollTop = frame.scrollHeight;
      }
    }
    return true;
  }

  private sections(): HTMLElement[] {
    const { item } = this;
    const parts: HTMLElement[] = [...this.arguments()];
    const diff = text(item.metadata.diff);
    if (diff) {
      parts.push(drawDiff(diff, this.path(), 'The change'));
    }
    if (item.error) {
      parts.push(labelled('Error', plain(item.error, 'nba-code nba-error-text')));
    }
    if (item.output) {
      const rich = item.name === 'task' || item.name === 'webfetch';
      parts.push(labelled('Output', rich ? prose(item.output) : this.output(item)));
    }
    for (const image of item.images ?? []) {
      const shown = picture(image);
      if (shown) {
        parts.push(shown);
      }
    }
    if (item.cut) {
      parts.push(
        h(
          'div',
          { class: 'nba-small' },
          this.context.live() ? 'Loading the rest…' : 'Shortened here; the session keeps the whole.'
        )
      );
    }
    if (!parts.length) {
      parts.push(h('div', { class: 'nba-small' }, item.state === 'completed' ? 'No output.' : 'Nothing yet.'));
    }
    return parts;
  }

  private output(item: ToolItem): HTMLElement {
    const frame = plain(item.output, 'nba-code nba-output');
    if (item.state === 'running') {
      const code = frame.querySelector('code');
      const node = code?.lastChild;
      if (node instanceof Text) {
        this.stream = { text: node, length: item.output.length };
      }
    }
    return frame;
  }

  private path(): string {
    return text(this.item.input.filePath) || text(this.item.input.path);
  }

  private arguments(): HTMLElement[] {
    const { item } = this;
    const rest: Record<string, unknown> = { ...item.input };
    const parts: HTMLElement[] = [];
    const take = (key: string, label: string, language: string): void => {
      if (text(rest[key])) {
        parts.push(labelled(label, coloured(text(rest[key]), language)));
        delete rest[key];
      }
    };
    take('command', 'Command', 'bash');
    take('code', 'Code', 'python');
    if (text(item.metadata.diff)) {
      for (const key of [
        'content',
        'oldString',
        'newString',
        'old',
        'new',
        'old_string',
        'new_string',
        'edits',
        'operations',
        'patch'
      ]) {
        delete rest[key];
      }
    } else {
      take('content', 'Content', languageOf(this.path()));
    }
    const title = this.titleText();
    const keys = Object.keys(rest).filter(key => rest[key] !== title);
    if (keys.length) {
      const list = h('dl', { class: 'nba-arguments' });
      for (const key of keys) {
        const value = rest[key];
        const shown = typeof value === 'string' ? value : JSON.stringify(value, null, 1);
        list.append(h('dt', {}, key), h('dd', { dir: 'auto' }, shown ?? ''));
      }
      parts.unshift(list);
    }
    return parts;
  }
}

function labelled(label: string, content: HTMLElement): HTMLElement {
  if (content.hasAttribute('tabindex')) {
    content.setAttribute('aria-label', label);
    content.setAttribute('role', 'region');
  }
  return h('div', { class: 'nba-section' }, h('div', { class: 'nba-label' }, label), content);
}

function coloured(value: string, language: string): HTMLElement {
  const code = h('code');
  code.append(colour(value, language));
  return h('pre', { class: 'nba-code', dir: 'ltr', tabindex: 0 }, code);
}

function plain(value: string, className: string): HTMLElement {
  const clean = value.replace(ANSI, '');
  const code = h('code');
  const frame = h('pre', { class: className, dir: 'auto', tabindex: 0 }, code);
  if (clean.length <= SHOWN) {
    code.append(document.createTextNode(clean));
    return frame;
  }
  code.append(document.createTextNode(clean.slice(-SHOWN)));
  const button = h(
    'button',
    {
      type: 'button',
      class: 'nba-link',
      onclick: () => {
        button.remove();
        code.replaceChildren(document.createTextNode(clean));
      }
    },
    `Show ${count(clean.length - SHOWN)} characters before this`
  );
  frame.prepend(button);
  return frame;
}

function prose(value: string): HTMLElement {
  const element = h('div', { class: 'nba-md nba-boxed', dir: 'auto', tabindex: 0 });
  element.append(markdown(value));
  return element;
}

const PICTURES = /^image\/(png|jpeg|gif|webp)$/;

function picture(image: { mime: string; data: string }): HTMLElement | null {
  if (!PICTURES.test(image.mime) || !/^[A-Za-z0-9+/=\s]+$/.test(image.data)) {
    return null;
  }
  return h('img', {
    class: 'nba-picture',
    src: `data:${image.mime};base64,${image.data.replace(/\s/g, '')}`,
    alt: 'Figure',
    loading: 'lazy'
  });
}
