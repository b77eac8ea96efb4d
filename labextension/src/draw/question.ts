/** Questions that are shown together and answered together. */

import { Card } from './card';
import { h, icon, setText, uid } from './dom';
import { isOpen, type Field, type QuestionItem } from './record';
import type { Context, ItemView } from './view';

interface FieldView {
  element: HTMLFieldSetElement;
  answer(): string[];
  choose(n: number): void;
}

function drawField(field: Field, onChange: () => void): FieldView {
  const group = uid();
  const type = field.multiple ? 'checkbox' : 'radio';
  const options = field.options.map(option => ({
    label: option.label,
    input: h('input', { type, name: group, value: option.label, onchange: onChange })
  }));
  const custom = h('input', {
    type: 'text',
    class: 'nba-input',
    placeholder: options.length ? 'Something else…' : 'Your answer',
    'aria-label': `${field.question} (in your own words)`,
    autocomplete: 'off',
    dir: 'auto',
    oninput: () => {
      if (!field.multiple && custom.value.trim()) {
        options.forEach(option => (option.input.checked = false));
      }
      onChange();
    }
  });
  const list = h('div', { class: 'nba-options' });
  field.options.forEach((option, i) => {
    list.append(
      h(
        'label',
        { class: 'nba-option' },
        options[i].input,
        h(
          'span',
          {},
          h('span', { class: 'nba-option-label', dir: 'auto' }, option.label),
          option.description && h('span', { class: 'nba-small', dir: 'auto' }, option.description)
        ),
        i < 9 && h('kbd', { 'aria-hidden': true }, String(i + 1))
      )
    );
  });
  options.forEach(option =>
    option.input.addEventListener('change', () => {
      if (!field.multiple && option.input.checked) {
        custom.value = '';
      }
    })
  );
  const element = h(
    'fieldset',
    { class: 'nba-field' },
    h('legend', { dir: 'auto' }, field.header && h('span', { class: 'nba-chip' }, field.header), ` ${field.question}`),
    list
  );
  if (field.custom || !options.length) {
    element.append(custom);
  }
  return {
    element,
    answer: () => {
      const chosen = options.filter(option => option.input.checked).map(option => option.label);
      const typed = custom.value.trim();
      return typed ? [...chosen, typed] : chosen;
    },
    choose: n => {
      options[n]?.input.click();
      options[n]?.input.focus();
    }
  };
}

export class QuestionView implements ItemView<QuestionItem> {
  readonly element: HTMLElement;
  private readonly card: Card;
  private readonly fields: FieldView[];
  private readonly submit: HTMLButtonElement;
  private drawn = '';

  constructor(
    private item: QuestionItem,
    private readonly context: Context
  ) {
    const title = uid();
    const press: Record<string, () => void> = { 'Escape typing': () => this.element.focus() };
    for (let n = 0; n < 9; n++) {
      press[String(n + 1)] = () => this.choose(n);
    }
    this.card = new Card(context, 'nba-ask', title, h('dl', { class: 'nba-outcome nba-answers' }), press);
    this.element = this.card.element;
    this.fields = item.questions.map(field => drawField(field, () => this.check()));
    this.submit = h(
      'button',
      { type: 'button', class: 'nba-button nba-primary', onclick: () => this.send() },
      'Answer',
      h('kbd', { 'aria-hidden': true }, '↵')
    );
    const decline = h(
      'button',
      {
        type: 'button',
        class: 'nba-button',
        onclick: () => this.card.answering.send({ kind: 'answers', id: this.item.id, answers: null }, decline)
      },
      'Leave it open'
    );
    this.card.controls.append(
      ...this.fields.map(field => field.element),
      h('div', { class: 'nba-buttons' }, this.submit, decline),
      this.card.answering.status
    );
    const many = item.questions.length === 1 ? 'A question' : `${item.questions.length} questions`;
    this.element.append(
      h('div', { class: 'nba-card-head' }, icon('ask'), h('strong', { id: title, dir: 'auto' }, item.title || many)),
      this.card.controls,
      this.card.outcome
    );
    this.element.addEventListener('keydown', event => {
      const target = event.target as HTMLElement;
      if (event.key === 'Enter' && !event.isComposing && target.tagName === 'INPUT' && !event.defaultPrevented) {
        event.preventDefault();
        this.goOn(target);
      }
    });
    this.check();
    this.update(item);
  }

  update(item: QuestionItem): void {
    this.item = item;
    const open = isOpen(item) && !this.context.over() && this.context.live();
    const key = `${JSON.stringify(item.answers)}|${item.status ?? ''}|${open}`;
    if (key === this.drawn) {
      return;
    }
    this.drawn = key;
    this.card.draw(open);
    if (open) {
      return;
    }
    this.card.outcome.replaceChildren();
    item.questions.forEach((field, i) => {
      const given = item.answers?.[i];
      const text = item.answers
        ? given?.length
          ? given.join(', ')
          : 'no answer'
        : item.status === 'declined'
          ? 'left open'
          : 'expired: nobody answered in time';
      const answer = h('dd', { dir: 'auto' });
      setText(answer, text);
      this.card.outcome.append(h('dt', { dir: 'auto' }, field.question), answer);
    });
  }

  focus(wanted?: boolean): void {
    this.card.keys.take(() => this.element.querySelector<HTMLElement>('.nba-field input') ?? this.element, wanted);
  }

  ack(): void {
    this.card.answering.ack();
  }

  refuse(error: string): void {
    this.card.answering.refuse(error);
    this.check();
  }

  dispose(): void {
    this.card.dispose();
  }

  private answers(): string[][] {
    return this.fields.map(field => field.answer());
  }

  private check(): void {
    this.submit.disabled = this.card.answering.state !== 'idle' || this.answers().every(answer => !answer.length);
  }

  private send(): void {
    if (!this.submit.disabled) {
      this.card.answering.send({ kind: 'answers', id: this.item.id, answers: this.answers() }, this.submit);
    }
  }

  /** Enter leads to the next question without an answer, and from the last one on it sends. */
  private goOn(from: HTMLElement): void {
    const at = this.fields.findIndex(field => field.element.contains(from));
    const next = this.fields.find((field, i) => i > at && !field.answer().length);
    if (next) {
      next.element.querySelector('input')?.focus();
    } else {
      this.send();
    }
  }

  /** A digit chooses in the question that has the focus, or in the first without an answer. */
  private choose(n: number): void {
    const at = this.fields.findIndex(field => field.element.contains(document.activeElement));
    const blank = this.fields.findIndex(field => !field.answer().length);
    this.fields[at >= 0 ? at : Math.max(0, blank)]?.choose(n);
  }
}
