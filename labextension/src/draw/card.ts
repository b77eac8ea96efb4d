/** A card that waits for a person: open, it has controls; decided, it is text and nothing is left to press. */

import { Answering } from './answering';
import { h, show } from './dom';
import { Keys } from './keys';
import type { Context } from './view';

export class Card {
  readonly element: HTMLElement;
  readonly controls = h('div', { class: 'nba-controls' });
  readonly answering: Answering;
  readonly keys: Keys;

  /** `outcome` is what stands where the controls were; `press` are the keys of the card. */
  constructor(
    context: Context,
    classes: string,
    title: string,
    readonly outcome: HTMLElement,
    press: Record<string, () => void>
  ) {
    this.element = h('section', { class: `nba-card ${classes}`, 'aria-labelledby': title, tabindex: -1 });
    this.answering = new Answering(context, this.element, 'The kernel will take it at its next step.');
    this.keys = new Keys(this.element, press);
  }

  draw(open: boolean): void {
    this.element.classList.toggle('nba-open', open);
    show(this.outcome, !open);
    if (open) {
      this.outcome.before(this.controls);
      return;
    }
    this.keys.giveBack();
    this.controls.remove();
    this.answering.clear();
    this.element.removeAttribute('aria-busy');
  }

  dispose(): void {
    this.keys.cancel();
    this.answering.clear();
  }
}
