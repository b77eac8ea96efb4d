import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Link, TARGET } from '../link';

interface Said {
  type: string;
  subshell: string | undefined;
  content: Record<string, unknown>;
}

/** A kernel connection as far as the link uses one; it answers control messages and keeps what was said. */
class FakeKernel {
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, string>(this);
  connectionStatus = 'connected';
  status = 'busy';
  isDisposed = false;
  clientId = 'page';
  username = 'ada';
  info: Promise<unknown> = Promise.resolve({ supported_features: ['kernel subshells'] });
  readonly said: Said[] = [];
  readonly comms: FakeComm[] = [];
  subshells = 0;

  sendControlMessage(message: { header: { msg_type: string }; content: Record<string, unknown> }) {
    this.said.push({ type: message.header.msg_type, subshell: undefined, content: message.content });
    return { done: Promise.resolve({ content: { status: 'ok', subshell_id: `sub-${++this.subshells}` } }) };
  }

  sendShellMessage(message: { header: { msg_type: string; subshell_id?: string }; content: Record<string, unknown> }) {
    this.said.push({
      type: message.header.msg_type,
      subshell: message.header.subshell_id,
      content: message.content
    });
  }

  createComm(target: string) {
    const comm = new FakeComm(target, `comm-${this.comms.length}`);
    this.comms.push(comm);
    return comm;
  }

  execute(code: string) {
    this.iopubMessage.emit({ header: { msg_type: 'execute_input' }, content: { code } });
  }
}

class FakeComm {
  onMsg: (message: { content: { data: unknown } }) => unknown = () => undefined;
  onClose: () => void = () => undefined;
  isDisposed = false;
  commsOverSubshells = '';

  constructor(
    readonly targetName: string,
    readonly commId: string
  ) {}

  receive(data: unknown) {
    return this.onMsg({ content: { data } });
  }

  dispose() {
    this.isDisposed = true;
  }
}

let kernel: FakeKernel;
let link: Link;

const settle = async () => {
  for (let i = 0; i < 20; i++) {
    await Promise.resolve();
  }
};

async function linked() {
  await link.connect();
  kernel.comms[0].receive({ kind: 'hello', version: 1 });
}

beforeEach(() => {
  kernel = new FakeKernel();
  link = new Link(
    kernel as never,
    () => ({ kind: 'hello', path: 'a.ipynb' }),
    async request => {
      if (request.op === 'fail') {
        throw new Error('no');
      }
      return { echo: request.op };
    }
  );
});

afterEach(() => {
  link.dispose();
  vi.useRealTimers();
});

describe('the link', () => {
  it('opens its comm over a subshell of its own, with what it has to say', async () => {
    await link.connect();
    expect(kernel.said.map(said => said.type)).toEqual(['create_subshell_request', 'comm_open']);
    expect(kernel.said[1].subshell).toBe('sub-1');
    expect(kernel.said[1].content).toMatchObject({ target_name: TARGET, data: { path: 'a.ipynb' } });
    expect(kernel.comms[0].commsOverSubshells).toBe('disabled');
  });

  it('counts as linked when the kernel has answered, and sends over its subshell', async () => {
    await link.connect();
    expect(link.linked).toBe(false);
    expect(link.send({ kind: 'x' })).toBe(false);
    const changes: boolean[] = [];
    link.linkedChanged.connect((_, on) => changes.push(on));
    kernel.comms[0].receive({ kind: 'hello' });
    expect(link.send({ kind: 'x' })).toBe(true);
    expect(kernel.said.at(-1)).toEqual({
      type: 'comm_msg',
      subshell: 'sub-1',
      content: { comm_id: 'comm-0', data: { kind: 'x' } }
    });
    kernel.comms[0].onClose();
    expect(changes).toEqual([true, false]);
  });

  it('answers requests without holding the kernel up', async () => {
    await linked();
    expect(kernel.comms[0].receive({ kind: 'request', id: 'r1', op: 'ping' })).toBeUndefined();
    kernel.comms[0].receive({ kind: 'request', id: 'r2', op: 'fail' });
    await settle();
    expect(kernel.said.slice(-2).map(said => said.content.data)).toEqual([
      { kind: 'response', id: 'r1', ok: true, echo: 'ping' },
      { kind: 'response', id: 'r2', ok: false, error: 'no' }
    ]);
  });

  it('passes other messages on', async () => {
    await linked();
    const heard: unknown[] = [];
    link.messages.connect((_, message) => heard.push(message));
    kernel.comms[0].receive({ kind: 'ack', id: 'k' });
    expect(heard).toEqual([{ kind: 'ack', id: 'k' }]);
  });

  it('comes when a cell of nbagent runs, and for no other', async () => {
    vi.useFakeTimers();
    kernel.execute('plan = 3');
    await vi.advanceTimersByTimeAsync(10_000);
    expect(kernel.said).toEqual([]);
    kernel.execute('%%plan\nthink');
    kernel.execute('%%plan\nthink');
    await vi.advanceTimersByTimeAsync(10_000);
    expect(kernel.said.filter(said => said.type === 'comm_open')).toHaveLength(1);
  });

  it('tries again where nbagent was not loaded yet', async () => {
    vi.useFakeTimers();
    kernel.execute('%load_ext nbagent');
    await vi.advanceTimersByTimeAsync(400);
    kernel.comms[0].onClose();
    await vi.advanceTimersByTimeAsync(1000);
    expect(kernel.comms).toHaveLength(2);
    expect(kernel.said.filter(said => said.type === 'delete_subshell_request')).toHaveLength(1);
  });

  it('leaves kernels without subshells alone', async () => {
    kernel.info = Promise.resolve({ supported_features: [] });
    expect(await link.connect()).toBe(false);
    expect(kernel.said).toEqual([]);
  });

  it('tries a kernel that is too busy to tell', async () => {
    vi.useFakeTimers();
    kernel.info = new Promise(() => undefined);
    const opened = link.connect();
    await vi.advanceTimersByTimeAsync(500);
    expect(await opened).toBe(true);
    const busy = link.busy();
    await vi.advanceTimersByTimeAsync(2000);
    expect(await busy).toBe(true);
  });

  it('is over when the kernel restarts, and can be made again', async () => {
    await linked();
    kernel.statusChanged.emit('restarting');
    expect(link.linked).toBe(false);
    expect(kernel.said.at(-1)?.type).toBe('comm_open');
    await link.connect();
    expect(kernel.comms).toHaveLength(2);
  });

  it('takes its subshell away when it goes', async () => {
    await linked();
    link.dispose();
    expect(kernel.said.at(-1)).toMatchObject({ type: 'delete_subshell_request', content: { subshell_id: 'sub-1' } });
    expect(kernel.comms[0].isDisposed).toBe(true);
    kernel.execute('%%plan');
    expect(kernel.said.at(-1)?.type).toBe('delete_subshell_request');
  });
});
