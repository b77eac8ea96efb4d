/** An open question about one call, and what became of it. */

import { Card } from './card';
import { colour, languageOf } from './colour';
import { drawDiff } from './diff';
import { h, icon, setText, uid } from './dom';
import { isOpen, type AskItem, type Pair, type Rule } from './record';
import type { Context, ItemView } from './view';

/** `edit src/**: deny (floor)`. */
export function ruleText(rule: Rule): string {
  const asked = [rule.permission, rule.pattern].filter(Boolean).join(' ');
  const words = [asked, rule.action].filter(Boolean).join(': ');
  return rule.layer ? `${words} (${rule.layer})` : words;
}

const DECIDED: Record<string, string> = {
  once: 'Allowed once',
  always: 'Always allowed',
  reject: 'Rejected',
  expired: 'Expired: nobody answered in time'
};

const BY: Record<string, string> = {
  auto: ' by automatic approval',
  cassette: ' by the cassette',
  nobody: ': nobody was there to answer'
};

export class AskView implements ItemView<AskItem> {
  readonly element: HTMLElement;
  private readonly card: Card;
  private readonly first: HTMLButtonElement;
  private readonly feedback: HTMLInputElement;
  private always: HTMLElement | null = null;
  private readonly body: HTMLElement;
  private shown: string;
  private drawn = '';

  constructor(
    private item: AskItem,
    private readonly context: Context
  ) {
    const title = uid();
    this.card = new Card(context, 'nba-ask', title, h('div', { class: 'nba-outcome', dir: 'auto' }), {
      '1': () => this.reply('once', this.first),
      '2': () => this.openAlways(),
      '3': () => this.reply('reject', reject),
      Escape: () => this.feedback.focus(),
      'Escape typing': () => this.first.focus()
    });
    this.element = this.card.element;
    this.first = this.button('Allow once', '1', 'nba-primary', () => this.reply('once', this.first));
    this.feedback = h('input', {
      type: 'text',
      class: 'nba-input',
      placeholder: 'What to do instead (optional)',
      'aria-label': 'Reject, and say what to do instead',
      autocomplete: 'off',
      dir: 'auto',
      onkeydown: (event: KeyboardEvent) => {
        if (event.key === 'Enter' && !event.isComposing && this.feedback.value.trim()) {
          event.preventDefault();
          this.reply('reject', reject);
        }
      }
    });
    const always = this.button('Always…', '2', '', () => this.openAlways());
    always.disabled = !item.remember.length && !item.suggest.length;
    if (always.disabled) {
      always.title = 'Nothing may be remembered for this call';
    }
    always.setAttribute('aria-expanded', 'false');
    this.alwaysButton = always;
    const reject = this.button('Reject', '3', 'nba-danger', () => this.reply('reject', reject));
    this.card.controls.append(
      h('div', { class: 'nba-buttons' }, this.first, always, reject, this.feedback),
      this.card.answering.status
    );
    this.element.append(
      h(
        'div',
        { class: 'nba-card-head' },
        icon('ask'),
        h('strong', { id: title, dir: 'auto' }, item.title || `Allow ${item.permission}?`),
        h('span', { class: 'nba-chip' }, item.permission)
      ),
      (this.body = this.what()),
      this.card.controls,
      this.card.outcome
    );
    this.shown = item.preview?.text ?? '';
    this.update(item);
  }

  private readonly alwaysButton: HTMLButtonElement;

  update(item: AskItem): void {
    this.item = item;
    if (this.shown !== (item.preview?.text ?? '')) {
      this.shown = item.preview?.text ?? '';
      this.body.replaceChildren(...Array.from(this.what().childNodes));
    }
    const open = isOpen(item) && !this.context.over() && this.context.live();
    const key = `${item.reply}|${item.feedback}|${item.by}|${open}`;
    if (key === this.drawn) {
      return;
    }
    this.drawn = key;
    this.card.draw(open);
    if (open) {
      return;
    }
    this.feedback.value = '';
    const reply = item.reply || 'expired';
    this.element.dataset.reply = reply;
    const by = reply === 'expired' ? '' : (BY[item.by] ?? '');
    setText(this.card.outcome, `${DECIDED[reply] ?? reply}${by}${item.feedback ? `: ${item.feedback}` : ''}`);
  }

  focus(wanted?: boolean): void {
    this.card.keys.take(() => (this.first.disabled ? this.element : this.first), wanted);
  }

  ack(): void {
    this.card.answering.ack();
    this.feedback.value = '';
  }

  refuse(error: string): void {
    this.card.answering.refuse(error);
    this.alwaysButton.disabled = !this.item.remember.length && !this.item.suggest.length;
  }

  dispose(): void {
    this.card.dispose();
  }

  private button(label: string, key: string, kind: string, act: () => void): HTMLButtonElement {
    return h(
      'button',
      { type: 'button', class: `nba-button ${kind}`, onclick: act, 'aria-keyshortcuts': key },
      label,
      h('kbd', { 'aria-hidden': true }, key)
    );
  }

  private what(): HTMLElement {
    const { item } = this;
    const body = h('div', { class: 'nba-card-body' });
    const list = h('ul', { class: 'nba-patterns', 'aria-label': 'What it touches' });
    for (const pattern of item.patterns.filter(one => !this.told(one))) {
      list.append(h('li', {}, h('code', { dir: 'ltr' }, pattern)));
    }
    if (list.firstChild) {
      body.append(list);
    }
    for (const note of item.notes) {
      body.append(h('div', { class: 'nba-warn', dir: 'auto' }, icon('warn'), note));
    }
    if (item.preview?.text) {
      body.append(preview(item.preview, item.patterns[0] ?? ''));
      if (item.cut && this.context.live()) {
        const more = h(
          'button',
          {
            type: 'button',
            class: 'nba-link',
            onclick: () => {
              more.disabled = true;
              this.context.host.send({ kind: 'fetch', id: item.id });
            }
          },
          'Show the whole of it'
        );
        body.append(more);
      }
    }
    if (item.rule) {
      body.append(h('div', { class: 'nba-small' }, 'Asked because of the rule ', h('code', {}, ruleText(item.rule))));
    }
    return body;
  }

  /** Whether the title or the preview shows a pattern as it is. */
  private told(pattern: string): boolean {
    const { title, preview } = this.item;
    return title.endsWith(` ${pattern}`) || (preview?.kind !== 'diff' && preview?.text.trim() === pattern.trim());
  }

  private reply(answer: 'once' | 'reject', button: HTMLElement): void {
    const feedback = answer === 'reject' ? this.feedback.value.trim() : '';
    this.card.answering.send(
      { kind: 'reply', id: this.item.id, answer, feedback, remember: null, save: false },
      button
    );
  }

  private openAlways(): void {
    if (this.alwaysButton.disabled) {
      return;
    }
    if (!this.always) {
      this.always = this.drawAlways();
      this.card.controls.insertBefore(this.always, this.card.answering.status);
    } else {
      this.always.hidden = !this.always.hidden;
    }
    this.alwaysButton.setAttribute('aria-expanded', String(!this.always.hidden));
    if (!this.always.hidden) {
      this.always.scrollIntoView?.({ block: 'nearest' });
      this.always.querySelector('input')?.focus();
    }
  }

  private drawAlways(): HTMLElement {
    const proposed = this.item.remember.length ? this.item.remember : this.item.suggest;
    const inputs: { permission: string; input: HTMLInputElement; keep: HTMLInputElement }[] = [];
    const panel = h('fieldset', { class: 'nba-always' }, h('legend', {}, 'Allow from now on, in this session'));
    for (const [permission, pattern] of proposed) {
      const keep = h('input', { type: 'checkbox', checked: true, 'aria-label': `Remember ${permission} ${pattern}` });
      const input = h('input', {
        type: 'text',
        class: 'nba-input',
        value: pattern,
        'aria-label': `Pattern for ${permission}`,
        spellcheck: 'false',
        dir: 'ltr'
      });
      inputs.push({ permission, input, keep });
      const wider = this.item.suggest.find(([p, w]) => p === permission && w !== pattern);
      panel.append(
        h(
          'div',
          { class: 'nba-always-row' },
          keep,
          h('code', {}, permission),
          input,
          wider &&
            h(
              'button',
              { type: 'button', class: 'nba-link', onclick: () => (input.value = wider[1]) },
              `wider: ${wider[1]}`
            )
        )
      );
    }
    const save = h('input', { type: 'checkbox' });
    const confirm = h(
      'button',
      {
        type: 'button',
        class: 'nba-button nba-primary',
        onclick: () => {
          const remember: Pair[] = inputs
            .filter(row => row.keep.checked && row.input.value.trim())
            .map(row => [row.permission, row.input.value.trim()]);
          this.card.answering.send(
            {
              kind: 'reply',
              id: this.item.id,
              answer: remember.length ? 'always' : 'once',
              feedback: '',
              remember: remember.length ? remember : null,
              save: remember.length > 0 && save.checked
            },
            confirm
          );
        }
      },
      'Always allow this'
    );
    panel.append(
      h('label', { class: 'nba-check' }, save, 'Also save it in this project’s settings'),
      h('div', { class: 'nba-buttons' }, confirm)
    );
    return panel;
  }
}

function preview(shown: { kind: string; text: string; language?: string }, path: string): HTMLElement {
  if (shown.kind === 'diff') {
    return drawDiff(shown.text, path, 'The change');
  }
  const language = shown.language || (shown.kind === 'command' ? 'bash' : shown.kind === 'code' ? 'python' : '');
  const code = h('code');
  code.append(colour(shown.text, language || languageOf(path)));
  return h(
    'pre',
    { class: 'nba-code nba-preview', dir: shown.kind === 'text' ? 'auto' : 'ltr', tabindex: 0 },
    shown.kind === 'command' && h('span', { class: 'nba-prompt', 'aria-hidden': true }, '$ '),
    code
  );
}
