/** A press and its way to the kernel: seen at once, sent once, locked when taken, open again when nothing comes back. */

import { h, setText } from './dom';
import type { PageMessage } from './record';
import type { Context } from './view';

/** A person sees within this time that a press is on its way. */
const SLOW = 1000;
/** After this time the card opens again. */
const LOST = 6000;

export class Answering {
  /** `idle` → `sent` → `taken`, or back to `idle` with a word why. */
  state: 'idle' | 'sent' | 'taken' = 'idle';
  readonly status = h('div', { class: 'nba-status', role: 'status' });
  private timers: ReturnType<typeof setTimeout>[] = [];
  private pressed: HTMLElement | null = null;

  constructor(
    private readonly context: Context,
    private readonly card: HTMLElement,
    private readonly waits: string
  ) {}

  /** Sends, unless something is under way or decided already. */
  send(message: PageMessage, button: HTMLElement | null): void {
    if (this.state !== 'idle') {
      return;
    }
    if (!this.context.live() || this.context.over()) {
      setText(this.status, 'This can no longer be answered here.');
      return;
    }
    this.state = 'sent';
    this.pressed = button;
    this.lock(true);
    button?.classList.add('nba-pressed');
    this.card.setAttribute('aria-busy', 'true');
    setText(this.status, 'Sending…');
    this.context.host.send(message);
    this.timers.push(
      setTimeout(() => setText(this.status, `Sent. ${this.waits}`), SLOW),
      setTimeout(() => this.reopen('The kernel has not answered yet. You can press again.'), LOST)
    );
  }

  ack(): void {
    this.clear();
    this.state = 'taken';
    this.lock(true);
    this.card.setAttribute('aria-busy', 'false');
    setText(this.status, 'Taken.');
  }

  refuse(error: string): void {
    if (this.state === 'taken') {
      return; // it went two ways, and the first was taken
    }
    this.reopen(error);
    this.status.classList.add('nba-bad');
  }

  /** Open for a new answer (what was asked has changed). */
  reset(): void {
    this.clear();
    this.state = 'idle';
    this.lock(false);
    this.card.removeAttribute('aria-busy');
    setText(this.status, '');
  }

  clear(): void {
    this.timers.forEach(clearTimeout);
    this.timers = [];
    this.pressed?.classList.remove('nba-pressed');
    this.status.classList.remove('nba-bad');
  }

  private reopen(why: string): void {
    const { pressed } = this;
    this.reset();
    setText(this.status, why);
    if (document.activeElement === this.card) {
      pressed?.focus({ preventScroll: true });
    }
  }

  private lock(locked: boolean): void {
    if (locked && this.card.contains(document.activeElement)) {
      this.card.focus({ preventScroll: true }); // a control that is switched off would drop it
    }
    for (const control of Array.from(
      this.card.querySelectorAll<HTMLButtonElement | HTMLInputElement | HTMLTextAreaElement>(
        '.nba-controls button, .nba-controls input, .nba-controls textarea'
      )
    )) {
      control.disabled = locked;
    }
  }
}
