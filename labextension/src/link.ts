/**
 * The link to a kernel: one comm over a subshell of its own, so that answers and edits get through while a cell runs.
 *
 * The kernel registers the target `nbagent` when nbagent is loaded. The page opens the comm when a cell of nbagent begins
 * to run (or runs already when the page comes), never before: kernels without nbagent hear nothing of it.
 */

import { KernelMessage, type Kernel } from '@jupyterlab/services';
import { CommsOverSubshells } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

export const TARGET = 'nbagent';

/** A cell whose start means that nbagent is, or will be, there. */
export const OURS = /^\s*(?:[\w.]+\s*=\s*)?(?:%%?(?:nb)?(?:plan|build)\b|%agent\b|%(?:re)?load_ext\s+nbagent\b)/m;

/** How long after a cell's start each try is made (ms): `%load_ext` itself takes a moment. */
const TRIES = [350, 1200, 3000, 7000];
const PATIENCE = 5000;

export interface Request {
  kind: 'request';
  id: string;
  op: string;
  [key: string]: unknown;
}

/** Answers a request of the kernel; throws to refuse. */
export type Answerer = (request: Request) => Promise<JSONObject> | JSONObject;

export class Link implements IDisposable {
  private comm: Kernel.IComm | null = null;
  private subshell: string | null = null;
  private opening: Promise<boolean> | null = null;
  private confirmed = false;
  private timers: ReturnType<typeof setTimeout>[] = [];
  private readonly changed = new Signal<this, boolean>(this);
  private readonly received = new Signal<this, JSONObject>(this);
  isDisposed = false;

  /** `hello`: what the kernel is told about this page. */
  constructor(
    readonly kernel: Kernel.IKernelConnection,
    private readonly hello: () => JSONObject,
    private readonly answer: Answerer
  ) {
    kernel.iopubMessage.connect(this.onIOPub, this);
    kernel.statusChanged.connect(this.onStatus, this);
  }

  /** Whether the kernel has said that it hears this page. */
  get linked(): boolean {
    return this.confirmed;
  }

  get linkedChanged(): ISignal<this, boolean> {
    return this.changed;
  }

  /** Other messages of the kernel. */
  get messages(): ISignal<this, JSONObject> {
    return this.received;
  }

  /** Sends to the kernel; false when there is no link. */
  send(message: JSONObject): boolean {
    if (!this.comm || !this.subshell || !this.confirmed) {
      return false;
    }
    this.say('comm_msg', { comm_id: this.comm.commId, data: message });
    return true;
  }

  /** Opens the link when there is none; true when the comm was opened. */
  connect(): Promise<boolean> {
    if (this.comm) {
      return Promise.resolve(true);
    }
    this.opening ??= this.open().finally(() => (this.opening = null));
    return this.opening;
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.isDisposed = true;
    this.timers.forEach(clearTimeout);
    this.kernel.iopubMessage.disconnect(this.onIOPub, this);
    this.kernel.statusChanged.disconnect(this.onStatus, this);
    this.close(true);
    Signal.clearData(this);
  }

  /** Tries now and, while there is no link, a few times more. */
  expect(): void {
    if (this.comm || this.timers.length) {
      return;
    }
    this.timers = TRIES.map((wait, i) =>
      setTimeout(() => {
        if (!this.comm && !this.isDisposed) {
          this.connect().catch(reason => console.debug('nbagent: no link to the kernel', reason));
        }
        if (i === TRIES.length - 1) {
          this.timers = [];
        }
      }, wait)
    );
  }

  /** Whether the kernel is at work and does not answer: a page that was just loaded knows nothing else of it. */
  async busy(): Promise<boolean> {
    return (await withTime(this.kernel.info, 1500)) === null;
  }

  private async open(): Promise<boolean> {
    const { kernel } = this;
    if (kernel.connectionStatus !== 'connected' || !(await hasSubshells(kernel))) {
      return false;
    }
    const subshell = await this.makeSubshell();
    if (!subshell || this.isDisposed) {
      return false;
    }
    const comm = kernel.createComm(TARGET);
    // the subshell is ours: the comm makes no second one
    comm.commsOverSubshells = CommsOverSubshells.Disabled;
    comm.onMsg = message => this.onMessage(message.content.data as JSONObject);
    comm.onClose = () => this.close(false);
    this.subshell = subshell;
    this.comm = comm;
    this.say('comm_open', { comm_id: comm.commId, target_name: TARGET, data: this.hello() });
    return true;
  }

  private async makeSubshell(): Promise<string | null> {
    const message = KernelMessage.createMessage<KernelMessage.ICreateSubshellRequestMsg>({
      msgType: 'create_subshell_request',
      channel: 'control',
      username: this.kernel.username,
      session: this.kernel.clientId,
      content: {}
    });
    const future = this.kernel.sendControlMessage(message, true);
    const reply = await withTime(future.done, PATIENCE);
    return (reply?.content as { subshell_id?: string } | undefined)?.subshell_id ?? null;
  }

  private say(msgType: 'comm_open' | 'comm_msg', content: object): void {
    const message = KernelMessage.createMessage({
      msgType,
      channel: 'shell',
      subshellId: this.subshell,
      username: this.kernel.username,
      session: this.kernel.clientId,
      content
    } as never) as unknown as KernelMessage.IShellMessage;
    this.kernel.sendShellMessage(message, false, true);
  }

  private close(tell: boolean): void {
    const { comm, subshell, kernel } = this;
    this.comm = null;
    this.subshell = null;
    this.confirm(false);
    if (comm && !comm.isDisposed) {
      comm.onClose = () => undefined;
      comm.dispose();
    }
    if (subshell && !kernel.isDisposed && kernel.connectionStatus === 'connected' && kernel.status !== 'dead') {
      const message = KernelMessage.createMessage<KernelMessage.IDeleteSubshellRequestMsg>({
        msgType: 'delete_subshell_request',
        channel: 'control',
        username: kernel.username,
        session: kernel.clientId,
        content: { subshell_id: subshell }
      });
      try {
        kernel.sendControlMessage(message, false, true);
      } catch (reason) {
        console.debug('nbagent: the subshell stays', tell, reason);
      }
    }
  }

  private confirm(linked: boolean): void {
    if (linked !== this.confirmed) {
      this.confirmed = linked;
      this.changed.emit(linked);
    }
  }

  /** Never returns a promise: the kernel's messages would wait for it. */
  private onMessage(data: JSONObject): void {
    if (data.kind === 'hello') {
      this.confirm(true);
    } else if (data.kind === 'request') {
      void this.respond(data as unknown as Request);
    } else {
      this.received.emit(data);
    }
  }

  private async respond(request: Request): Promise<void> {
    let response: JSONObject;
    try {
      response = { ok: true, ...(await this.answer(request)) };
    } catch (reason) {
      response = { ok: false, error: reason instanceof Error ? reason.message : String(reason) };
    }
    this.send({ kind: 'response', id: request.id, ...response });
  }

  private onIOPub(_: Kernel.IKernelConnection, message: KernelMessage.IIOPubMessage): void {
    if (message.header.msg_type === 'execute_input') {
      const { code } = message.content as { code?: string };
      if (typeof code === 'string' && OURS.test(code)) {
        this.expect();
      }
    }
  }

  private onStatus(_: Kernel.IKernelConnection, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this.subshell = null;
      this.close(false);
    }
  }
}

async function withTime<T>(promise: Promise<T>, milliseconds: number): Promise<T | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<null>(resolve => {
    timer = setTimeout(() => resolve(null), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether the kernel knows subshells. A busy kernel that never told is asked by trying. */
async function hasSubshells(kernel: Kernel.IKernelConnection): Promise<boolean> {
  const info = await withTime(kernel.info, 300);
  return info === null || (info.supported_features ?? []).includes('kernel subshells');
}
