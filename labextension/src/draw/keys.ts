/** Keys on a card that waits: digits press its buttons. A key that was meant for something else never decides. */

import { isTyping } from './dom';

/** Keys are dead for this long after the focus came by itself: what was being typed went elsewhere a moment ago. */
const ARMING = 500;
/** Nobody typed for this long: the focus may be taken. */
const QUIET = 1200;

let lastKey = -QUIET;
let watching = false;

/** Notes when a key was last pressed anywhere in the page, cards aside: who answers one may be led to the next. */
export function watchTyping(): void {
  if (!watching) {
    watching = true;
    const note = (event: KeyboardEvent): void => {
      if (!(event.target instanceof Element && event.target.closest('.nba-card'))) {
        lastKey = performance.now();
      }
    };
    document.addEventListener('keydown', note, { capture: true, passive: true });
  }
}

/** Whether somebody is at the keyboard with something else now. */
export function busyElsewhere(): boolean {
  return performance.now() - lastKey < QUIET;
}

export class Keys {
  private armed = 0;
  private timer: ReturnType<typeof setTimeout> | null = null;
  /** Where the focus was before it came in here. */
  private back: HTMLElement | null = null;

  constructor(
    private readonly card: HTMLElement,
    private readonly press: Record<string, () => void>
  ) {
    card.addEventListener('keydown', event => this.onKey(event));
    // whoever points at the card means it
    card.addEventListener('pointerdown', () => (this.armed = 0));
    card.addEventListener('keyup', event => event.stopPropagation());
    card.addEventListener('focusin', event => {
      const from = event.relatedTarget;
      if (from instanceof HTMLElement && !card.contains(from)) {
        this.back = from;
      }
    });
  }

  /** Moves the focus to `target` when that takes nothing away from somebody at the keyboard; `wanted`: at once. */
  take(target: () => HTMLElement | null, wanted = false, tries = 20): void {
    this.cancel();
    const active = document.activeElement;
    if (active && this.card.contains(active)) {
      return;
    }
    if (!wanted && busyElsewhere()) {
      if (tries > 0) {
        this.timer = setTimeout(() => this.take(target, false, tries - 1), 300);
      }
      return;
    }
    this.armed = performance.now() + ARMING;
    target()?.focus({ preventScroll: false });
  }

  /** What waited is decided: whoever is in here goes back to where they were. */
  giveBack(): void {
    this.cancel();
    const { back } = this;
    this.back = null;
    if (this.card.contains(document.activeElement)) {
      (back?.isConnected ? back : this.card).focus({ preventScroll: true });
    }
  }

  cancel(): void {
    if (this.timer !== null) {
      clearTimeout(this.timer);
      this.timer = null;
    }
  }

  private onKey(event: KeyboardEvent): void {
    if (performance.now() < this.armed) {
      // whoever types on has not seen yet where the keys go
      this.armed = performance.now() + ARMING;
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) {
      return;
    }
    const typing = isTyping(event.target as Element);
    const name = typing ? (event.key === 'Escape' ? 'Escape typing' : '') : event.key;
    const act = name ? this.press[name] : undefined;
    if (act && !event.repeat) {
      event.preventDefault();
      event.stopPropagation();
      act();
    }
  }
}
