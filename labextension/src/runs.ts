/** What the notebooks' runs say about themselves: the drawings tell, the status bar and the side panel listen. */

import { PageConfig } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal, type ISignal } from '@lumino/signaling';

import type { PageMessage, Record_ } from './draw/record';
import type { LiveNotebook } from './live';

/** The newest run of a notebook: what it says, the cell that it is drawn in, whether it was seen while it went on. */
interface Seen {
  record: Record_;
  cell: Element | null;
  live: boolean;
}

export class Runs {
  private readonly runs = new WeakMap<NotebookPanel, Seen>();
  private readonly live = new WeakMap<NotebookPanel, LiveNotebook>();
  private readonly recordChanged = new Signal<this, NotebookPanel>(this);

  constructor(private readonly tracker: INotebookTracker) {
    document.addEventListener('nbagent:record', event => this.onRecord(event as CustomEvent<Record_>));
    document.addEventListener('nbagent:message', event => this.onMessage(event as CustomEvent<PageMessage>));
  }

  get changed(): ISignal<this, NotebookPanel> {
    return this.recordChanged;
  }

  /** The newest run of a notebook. */
  record(panel: NotebookPanel | null): Record_ | null {
    return panel ? (this.runs.get(panel)?.record ?? null) : null;
  }

  /** Whether the newest run of a notebook was seen while it went on. */
  wasLive(panel: NotebookPanel): boolean {
    return this.runs.get(panel)?.live ?? false;
  }

  notebook(panel: NotebookPanel | null): LiveNotebook | null {
    return panel ? (this.live.get(panel) ?? null) : null;
  }

  /** Leads the person to what waits in a notebook; false when nothing does. */
  attend(panel: NotebookPanel | null): boolean {
    if (!panel || this.record(panel)?.state !== 'waiting') {
      return false;
    }
    panel.node.querySelectorAll('.nba').forEach(drawing => drawing.dispatchEvent(new CustomEvent('nbagent:attend')));
    return true;
  }

  add(panel: NotebookPanel, live: LiveNotebook): void {
    this.live.set(panel, live);
    live.changed.connect(() => this.recordChanged.emit(panel));
    live.messages.connect((_, message) => {
      if (message.kind === 'ack') {
        for (const drawing of Array.from(panel.node.querySelectorAll('.nba'))) {
          drawing.dispatchEvent(new CustomEvent('nbagent:kernel', { detail: message }));
        }
      }
    });
  }

  private panelOf(event: Event): NotebookPanel | null {
    const target = event.target as Node | null;
    return (target && this.tracker.find(panel => panel.node.contains(target))) ?? null;
  }

  private onRecord(event: CustomEvent<Record_>): void {
    const panel = this.panelOf(event);
    const record = event.detail;
    if (!panel) {
      return;
    }
    const before = this.runs.get(panel);
    const cell = (event.target as Element).closest('.jp-Cell');
    // a run that is played leaves a record without times, where its live view was; other such records count as they are drawn
    const same = before !== undefined && cell !== null && before.cell === cell;
    if (!before || same || before.record.head.started <= record.head.started) {
      this.runs.set(panel, { record, cell, live: record.state !== 'done' || (same && before.live) });
      this.recordChanged.emit(panel);
    }
  }

  /** An answer given in the live view goes over the link as well. */
  private onMessage(event: CustomEvent<PageMessage>): void {
    const { kind } = event.detail;
    if (kind === 'reply' || kind === 'answers' || kind === 'verdict' || kind === 'stop') {
      this.notebook(this.panelOf(event))?.send({ kind: 'message', message: event.detail as never });
    }
  }
}

/** The server's path of a file of a project, or null when it is outside of what the server shows. */
export function serverPath(path: string, root: string, serverRoot = PageConfig.getOption('serverRoot')): string | null {
  const absolute = path.startsWith('/') || /^[A-Za-z]:/.test(path) ? path : `${root}/${path}`;
  const clean = normalise(absolute);
  let base = serverRoot.replace(/\/+$/, '');
  if (base.startsWith('~')) {
    // the server tells its root with the home folder left out; the project's root shows which one it is
    const tail = base.slice(1);
    const at = tail ? clean.indexOf(`${tail}/`) : -1;
    const home = /^(\/(?:home|Users)\/[^/]+|\/root)/.exec(clean)?.[1];
    base = at > 0 ? clean.slice(0, at) + tail : tail || !home ? '' : home;
  }
  return base && clean.startsWith(`${base}/`) ? clean.slice(base.length + 1) : null;
}

function normalise(path: string): string {
  const out: string[] = [];
  for (const part of path.replace(/\\/g, '/').split('/')) {
    if (part === '..') {
      out.pop();
    } else if (part !== '.' && (part !== '' || !out.length)) {
      out.push(part);
    }
  }
  return out.join('/');
}
