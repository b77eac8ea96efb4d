/** A run, drawn into an element and kept up to date. Framework-free: the widget and the record's renderer both mount it. */

import { h, setText, show } from './dom';
import { Header } from './header';
import { busyElsewhere, watchTyping } from './keys';
import { drawReceipt } from './receipt';
import { fold, isOpen, normal, type KernelMessage, type Patch, type Record_ } from './record';
import { Transcript } from './transcript';
import type { Context, Host } from './view';

/** Over this number of items a finished transcript keeps its own scroll bar. */
const LONG = 40;

export class Drawing {
  readonly element: HTMLElement;
  private record: Record_ = normal(null);
  private index = new Map<string, number>();
  private alive: boolean;
  private readonly context: Context;
  private readonly header: Header;
  private readonly transcript: Transcript;
  private readonly scroll: HTMLElement;
  private readonly end = h('div', { class: 'nba-end' });
  private readonly speech = h('div', { class: 'nba-sr', role: 'status', 'aria-live': 'polite' });
  private readonly dirty = new Set<string>();
  private dirtyFrame = false;
  private frame = 0;
  private following = true;
  private readonly focused = new Set<string>();
  private receiptDrawn: unknown = null;
  private disposed = false;

  /** `live`: answers can reach a kernel. */
  constructor(
    root: HTMLElement,
    private readonly host: Host,
    live: boolean
  ) {
    this.alive = live;
    watchTyping();
    this.context = {
      host,
      live: () => this.alive,
      over: () => this.record.state === 'done',
      announce: text => setText(this.speech, text),
      moved: () => this.schedule()
    };
    this.header = new Header(this.context, () => this.goToOpen());
    this.transcript = new Transcript(this.context);
    this.scroll = h(
      'div',
      { class: 'nba-scroll', tabindex: 0, role: 'group', 'aria-label': 'Transcript' },
      this.transcript.element
    );
    this.scroll.addEventListener('scroll', () => this.onScroll(), { passive: true });
    // keys pressed in here are never commands of the application
    this.element = h(
      'div',
      { class: 'nba', role: 'region', 'aria-label': 'nbagent', 'data-lm-suppress-shortcuts': 'true' },
      this.header.element,
      this.scroll,
      this.end,
      this.speech
    );
    for (const type of ['keydown', 'keyup', 'keypress'] as const) {
      this.element.addEventListener(type, event => event.stopPropagation());
    }
    // the application's own link to the kernel may know sooner than the widget's
    this.element.addEventListener('nbagent:kernel', event =>
      this.receive((event as CustomEvent<KernelMessage>).detail)
    );
    // and may lead the person here
    this.element.addEventListener('nbagent:attend', () => this.goToOpen());
    root.append(this.element);
  }

  /** The whole record, again. What did not change is not drawn again. */
  update(value: unknown): void {
    const before = this.record;
    const known = this.index;
    this.record = normal(value);
    this.index = new Map(this.record.items.map((item, i) => [item.id, i]));
    for (const item of this.record.items) {
      const place = known.get(item.id);
      if (place === undefined || !same(before.items[place], item)) {
        this.dirty.add(item.id);
      }
    }
    this.transcript.keep(new Set(this.index.keys()));
    this.after(before.state !== this.record.state);
  }

  patch(patch: Patch): void {
    const touched = fold(this.record, this.index, patch);
    touched.items.forEach(id => this.dirty.add(id));
    this.after(touched.state);
  }

  /** A message of the kernel. */
  receive(message: KernelMessage): void {
    switch (message?.kind) {
      case 'patch':
        this.patch(message);
        break;
      case 'ack':
        this.flush();
        this.transcript.view(message.id)?.ack?.();
        break;
      case 'refused':
        this.flush();
        this.transcript.view(message.id)?.refuse?.(message.error);
        break;
      case 'full':
        this.patch({ kind: 'patch', items: [{ ...message.item, cut: false }] });
        break;
    }
  }

  /** Whether something waits for a person now. */
  get waiting(): boolean {
    return this.record.state === 'waiting';
  }

  get done(): boolean {
    return this.record.state === 'done';
  }

  /** The link to the kernel came or went. */
  setLive(live: boolean): void {
    if (live !== this.alive) {
      this.alive = live;
      this.transcript.refresh();
      this.header.update(this.record);
    }
  }

  /** The element is in the page now: focus and scrolling mean something. */
  attached(): void {
    this.follow();
    this.attend();
    this.tell();
  }

  /** Draws now what waits for the next frame. */
  flush(): void {
    if (this.frame) {
      cancelAnimationFrame(this.frame);
      this.frame = 0;
    }
    if (!this.dirtyFrame || this.disposed) {
      return;
    }
    this.dirtyFrame = false;
    const { record } = this;
    this.header.update(record);
    const items = Array.from(this.dirty, id => record.items[this.index.get(id) ?? -1]).filter(Boolean);
    this.dirty.clear();
    this.transcript.draw(items);
    this.drawEnd();
    this.element.dataset.state = record.state;
    this.element.classList.toggle('nba-long', record.state !== 'done' || record.items.length > LONG);
    show(this.scroll, record.items.length > 0);
    this.follow();
    this.attend();
    this.tell();
  }

  dispose(): void {
    this.disposed = true;
    if (this.frame) {
      cancelAnimationFrame(this.frame);
    }
    this.header.dispose();
    this.transcript.dispose();
    this.element.remove();
  }

  /** The application around may show the run elsewhere too (status bar, side panel). */
  private tell(): void {
    this.element.dispatchEvent(
      new CustomEvent<Record_>('nbagent:record', { bubbles: true, composed: true, detail: this.record })
    );
  }

  private after(stateChanged: boolean): void {
    this.dirtyFrame = true;
    if (stateChanged) {
      if (this.record.state === 'done') {
        this.leave();
        this.context.announce(this.record.receipt?.line || 'Done.');
        // what was open is expired now
        this.record.items.filter(isOpen).forEach(item => this.dirty.add(item.id));
      } else if (this.record.state === 'waiting') {
        this.context.announce(`Waiting for ${this.record.head.waiting || 'you'}.`);
      }
    }
    this.schedule();
  }

  private schedule(): void {
    if (!this.frame && !this.disposed) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.flush();
      });
    }
  }

  private drawEnd(): void {
    const { receipt } = this.record;
    if (receipt !== this.receiptDrawn) {
      this.receiptDrawn = receipt;
      this.end.replaceChildren(...(receipt ? [drawReceipt(receipt, this.host)] : []));
    }
  }

  private onScroll(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    this.following = scrollHeight - scrollTop - clientHeight < 48;
  }

  /** Stays at the end while text comes, unless the person scrolled up. */
  private follow(): void {
    if (this.following && this.record.state !== 'done') {
      this.scroll.scrollTop = this.scroll.scrollHeight;
    }
  }

  /** What waits gets the focus once, one after the other, and is brought into sight unless somebody is busy elsewhere. */
  private attend(): void {
    if (!this.alive || this.record.state === 'done' || !this.element.isConnected) {
      return;
    }
    const fresh = this.record.items.find(item => isOpen(item) && !this.focused.has(item.id));
    const view = fresh && this.transcript.view(fresh.id);
    const busy = document.activeElement?.closest('.nba-open');
    if (view && !(busy && this.element.contains(busy))) {
      this.focused.add(fresh.id);
      if (busyElsewhere()) {
        this.scroll.scrollTop += view.element.getBoundingClientRect().top - this.scroll.getBoundingClientRect().top;
      } else {
        this.reveal(view.element);
      }
      view.focus?.();
    }
  }

  private goToOpen(): void {
    const open = this.alive ? this.record.items.find(isOpen) : undefined;
    const view = open && this.transcript.view(open.id);
    this.reveal(view?.element);
    view?.focus?.(true);
  }

  /** The drawing may go now: who is in it by keyboard is taken to what is around it. */
  private leave(): void {
    if (this.element.contains(document.activeElement)) {
      this.element.parentElement?.closest<HTMLElement>('[tabindex]')?.focus({ preventScroll: true });
    }
  }

  private reveal(element: HTMLElement | undefined): void {
    for (let up = element?.parentElement; up && up !== this.element; up = up.parentElement) {
      if (up instanceof HTMLDetailsElement) {
        up.open = true;
      }
    }
    element?.scrollIntoView?.({ block: 'nearest' });
  }
}

/** Whether two values of JSON are the same. Strings are compared as they are: nothing is written out. */
function same(a: unknown, b: unknown): boolean {
  if (a === b) {
    return true;
  }
  if (!a || !b || typeof a !== 'object' || typeof b !== 'object' || Array.isArray(a) !== Array.isArray(b)) {
    return false;
  }
  const left = a as Record<string, unknown>;
  const right = b as Record<string, unknown>;
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every(key => key in right && same(left[key], right[key]));
}
