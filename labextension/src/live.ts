/** A notebook panel and its kernel: the link, the edits that come over it, and what was changed. */

import type { CodeCell } from '@jupyterlab/cells';
import { PageConfig } from '@jupyterlab/coreutils';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { IOutput } from '@jupyterlab/nbformat';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { JSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import { apply, cellsOf, Refused, type CellChange, type Operation } from './cells';
import { Link, OURS, type Request } from './link';
import { RECORD_MIME } from './renderer';

/** Paths (of the server) of documents with unsaved changes. */
export type Dirty = () => string[];

export interface LiveSettings {
  liveEditing: boolean;
  saveAfterEdit: boolean;
}

export class LiveNotebook implements IDisposable {
  private link: Link | null = null;
  private readonly stateChanged = new Signal<this, void>(this);
  private readonly message = new Signal<this, JSONObject>(this);
  /** What was changed in cells since the notebook was opened, newest last. */
  readonly changes: CellChange[] = [];
  isDisposed = false;
  private timer: ReturnType<typeof setInterval> | null = null;

  constructor(
    readonly panel: NotebookPanel,
    private readonly dirty: Dirty,
    private readonly settings: () => LiveSettings
  ) {
    panel.sessionContext.kernelChanged.connect(this.onKernel, this);
    panel.disposed.connect(() => this.dispose());
    this.onKernel();
  }

  get linked(): boolean {
    return this.link?.linked ?? false;
  }

  get changed(): ISignal<this, void> {
    return this.stateChanged;
  }

  get messages(): ISignal<this, JSONObject> {
    return this.message;
  }

  send(message: JSONObject): boolean {
    return this.link?.send(message) ?? false;
  }

  /** Tells the kernel which documents have unsaved changes. */
  tellDirty(): void {
    this.send({ kind: 'dirty', paths: this.dirty(), editing: this.settings().liveEditing });
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.isDisposed = true;
      this.panel.sessionContext.kernelChanged.disconnect(this.onKernel, this);
      this.keepAlive(false);
      this.link?.dispose();
      this.link = null;
      Signal.clearData(this);
    }
  }

  private onKernel(): void {
    this.link?.dispose();
    this.link = null;
    const kernel = this.panel.sessionContext.session?.kernel;
    if (!kernel || this.isDisposed) {
      return;
    }
    const link = new Link(
      kernel,
      () => this.hello(kernel.clientId),
      request => this.answer(request)
    );
    this.link = link;
    link.linkedChanged.connect(() => this.stateChanged.emit());
    link.messages.connect((_, message) => this.message.emit(message));
    void this.catchUp(link);
  }

  /** The page came while a cell runs: its output is gone from here, but the kernel can tell it again. */
  private async catchUp(link: Link): Promise<void> {
    await this.panel.context.ready;
    if (!this.hasOurs() || !(await link.busy()) || link.isDisposed) {
      return;
    }
    link.linkedChanged.connect((_, linked) => linked && link.send({ kind: 'watch' }));
    link.messages.connect((_, message) => {
      if (message.kind === 'record') {
        this.showRecord(String(message.cell), message.data as JSONObject);
      }
    });
    link.expect();
  }

  /** Puts the record of a run into the output of its cell, and says that it is seen there. */
  private showRecord(id: string, data: JSONObject): void {
    const cell = this.panel.content.widgets.find(widget => widget.model.id === id);
    if (!cell || cell.model.type !== 'code') {
      return;
    }
    const { outputs } = (cell as CodeCell).model;
    const output: IOutput = {
      output_type: 'display_data',
      metadata: {},
      data
    };
    let at = 0;
    while (at < outputs.length && !isRun(outputs.get(at).toJSON())) {
      at++;
    }
    if (at < outputs.length) {
      outputs.set(at, output);
    } else {
      outputs.add(output);
    }
    this.keepAlive((data[RECORD_MIME] as JSONObject | undefined)?.state === 'waiting');
  }

  private keepAlive(waiting: boolean): void {
    if (this.timer !== null && !waiting) {
      clearInterval(this.timer);
      this.timer = null;
    } else if (this.timer === null && waiting) {
      const alive = (): void => void this.send({ kind: 'message', message: { kind: 'alive', seq: 0 } });
      this.timer = setInterval(alive, 2000);
      alive();
    }
  }

  private hasOurs(): boolean {
    return this.panel.context.model.sharedModel.cells.some(
      cell => cell.cell_type === 'code' && OURS.test(cell.getSource())
    );
  }

  private hello(session: string): JSONObject {
    return {
      kind: 'hello',
      version: 1,
      session,
      path: this.panel.context.path,
      root: PageConfig.getOption('serverRoot'),
      dirty: this.dirty(),
      editing: this.settings().liveEditing
    };
  }

  private async answer(request: Request): Promise<JSONObject> {
    const notebook = this.panel.context.model.sharedModel;
    switch (request.op) {
      case 'ping':
        return { path: this.panel.context.path };
      case 'cells':
        return { cells: cellsOf(notebook) as JSONObject[] };
      case 'apply':
        return await this.apply(request);
      default:
        throw new Refused(`This page does not know the request ${request.op}.`);
    }
  }

  private async apply(request: Request): Promise<JSONObject> {
    if (!this.settings().liveEditing) {
      throw new Refused('Live editing is switched off in the settings of JupyterLab.');
    }
    if (this.panel.context.model.readOnly) {
      throw new Refused('The open notebook is read-only.');
    }
    const { sharedModel } = this.panel.context.model;
    const outcome = apply(sharedModel, request.operations as Operation[], String(request.running ?? ''));
    this.changes.push(...outcome.changes);
    this.mark(outcome.changes);
    if (this.settings().saveAfterEdit) {
      await this.panel.context.save();
    }
    this.stateChanged.emit();
    return { lines: outcome.lines, new_ids: outcome.newIds, changes: outcome.changes as unknown as JSONObject[] };
  }

  /** Shows for a moment which cells were touched. */
  private mark(changes: readonly CellChange[]): void {
    const touched = new Set(changes.map(change => change.id));
    for (const cell of this.panel.content.widgets) {
      if (touched.has(cell.model.id)) {
        cell.addClass('nba-mod-touched');
        setTimeout(() => cell.isDisposed || cell.removeClass('nba-mod-touched'), 4000);
      }
    }
  }
}

/** Whether an output is a run of nbagent: its record, or a live view that lost its model. */
function isRun(output: IOutput): boolean {
  const data = (output as { data?: Record<string, unknown> }).data ?? {};
  return RECORD_MIME in data || 'application/vnd.jupyter.widget-view+json' in data;
}

/** Documents with unsaved changes, of all kinds; `exists` walks what is open. */
export function dirtyPaths(manager: IDocumentManager, widgets: Iterable<unknown>): string[] {
  const paths = new Set<string>();
  for (const widget of widgets) {
    const context = manager.contextForWidget(widget as never) as DocumentRegistry.Context | undefined;
    if (context?.model.dirty) {
      paths.add(context.path);
    }
  }
  return [...paths];
}
