/** What every part of the drawing is given, and what each gives back. */

import type { Item, PageMessage } from './record';

/** The place that a drawing is mounted in. */
export interface Host {
  /** Sends to the kernel. Called only while `live` is true. */
  send(message: PageMessage): void;
  /** Opens a file of the project in the application; absent where there is none. */
  openFile?: (path: string) => void;
  /** A person chose to build the plan later (the application may put a cell below). */
  buildLater?: (path: string) => void;
}

export interface Context {
  readonly host: Host;
  /** Whether an answer can reach the kernel. */
  live(): boolean;
  /** Whether the run is over (open items are then expired). */
  over(): boolean;
  /** Says something to screen readers, politely. */
  announce(text: string): void;
  /** The layout must be looked at again (a card's kind of slot changed). */
  moved(): void;
}

export interface ItemView<T extends Item = Item> {
  readonly element: HTMLElement;
  update(item: T): void;
  /** Takes the keyboard focus, when it has something to answer; `wanted`: the person asked for it. */
  focus?(wanted?: boolean): void;
  /** The kernel took the answer. */
  ack?(): void;
  /** The kernel could not take the answer. */
  refuse?(error: string): void;
  /** Where the items go that this one is the parent of. */
  nest?(): HTMLElement;
  dispose?(): void;
}
