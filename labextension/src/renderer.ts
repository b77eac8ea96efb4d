/** The record's renderer: the same drawing as the live view, answerable where the notebook is linked to its kernel. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { Drawing } from './draw/drawing';
import type { KernelMessage, PageMessage } from './draw/record';
import type { Host } from './draw/view';

export const RECORD_MIME = 'application/vnd.nbagent.record+json';

/** The way to the kernel that a record's cards can use. */
export interface Answers {
  readonly linked: boolean;
  send(message: PageMessage): boolean;
  /** Calls back on every message of the kernel and on every change of `linked`; returns how to stop. */
  watch(onMessage: (message: KernelMessage) => void, onLinked: () => void): () => void;
}

export interface Surroundings {
  /** Opens a file that a record names; `root` is the folder that the record's paths are relative to. */
  openFile?: (path: string, root: string) => void;
  answers?: Answers;
}

export class RecordWidget extends Widget implements IRenderMime.IRenderer {
  private readonly drawing: Drawing;
  private readonly unwatch: () => void;
  private root = '';

  constructor(
    private readonly mime: string,
    surroundings: Surroundings
  ) {
    super();
    this.addClass('nba-Record');
    const { answers, openFile } = surroundings;
    const host: Host = {
      send: message => void answers?.send(message),
      openFile: openFile ? path => openFile(path, this.root) : undefined
    };
    this.drawing = new Drawing(this.node, host, answers?.linked ?? false);
    this.unwatch =
      answers?.watch(
        message => this.drawing.receive(message),
        () => this.drawing.setLive(answers.linked)
      ) ?? (() => undefined);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const record = model.data[this.mime] as { head?: { root?: string } } | undefined;
    this.root = record?.head?.root ?? '';
    this.drawing.update(record);
    this.drawing.flush();
  }

  protected onAfterAttach(): void {
    this.drawing.attached();
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.unwatch();
      this.drawing.dispose();
      super.dispose();
    }
  }
}

/** `safe`: the drawing makes no element out of text, so a record needs no trust. */
export function recordFactory(surroundings: Surroundings = {}): IRenderMime.IRendererFactory {
  return {
    safe: true,
    mimeTypes: [RECORD_MIME],
    defaultRank: 20,
    createRenderer: options => new RecordWidget(options.mimeType, surroundings)
  };
}
