/**
 * Live views whose kernel is gone. Nobody can press anything in them any more, and a saved notebook would show a widget
 * without its model: what was drawn last takes their place as a record, or one sentence where the page knows no more.
 */

import type { CodeCell } from '@jupyterlab/cells';
import type { IOutput } from '@jupyterlab/nbformat';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

import type { Item, Record_ } from './draw/record';
import { RECORD_MIME } from './renderer';

const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';
const GONE = new Set<Kernel.Status>(['restarting', 'autorestarting', 'dead', 'terminating']);
const RESUME = 'the kernel was stopped; %agent sessions shows how to go on';

interface Saved {
  data?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
}

/** The id of the widget's model, when an output is a live view of ours. */
export function liveModel(output: IOutput): string | null {
  const { data, metadata } = output as Saved;
  const view = data?.[WIDGET_MIME] as { model_id?: unknown } | undefined;
  return view && metadata?.nbagent === 'live' ? String(view.model_id) : null;
}

function closed(item: Item): Item {
  switch (item.kind) {
    case 'tool':
      return item.state === 'completed' || item.state === 'error'
        ? item
        : { ...item, state: 'error', error: item.error || 'interrupted' };
    case 'ask':
      return item.reply ? item : { ...item, reply: 'expired' };
    case 'question':
      return item.answers || item.status === 'declined' ? item : { ...item, status: 'expired' };
    case 'review':
      return item.status === 'awaiting' ? { ...item, status: 'expired' } : item;
    case 'retry':
      return { ...item, done: true };
    default:
      return item;
  }
}

/** The record of a run that the kernel's end cut off, as an output. */
export function stranded(record: Record_ | null): IOutput {
  if (!record || record.state === 'done') {
    const text = `nbagent: this run had not ended when the notebook was saved: ${RESUME}.`;
    return { output_type: 'display_data', metadata: {}, data: { 'text/plain': text } };
  }
  const files = record.receipt?.files ?? [];
  const line = `cut off: ${RESUME}`;
  const ended: Record_ = {
    ...record,
    state: 'done',
    head: { ...record.head, waiting: '' },
    items: record.items.map(closed),
    receipt: {
      files,
      notes: [],
      plan: record.head.plan,
      tokens: {},
      seconds: record.head.seconds,
      cost: null,
      reason: 'stopped',
      line
    }
  };
  return {
    output_type: 'display_data',
    metadata: {},
    data: { [RECORD_MIME]: ended as never, 'text/plain': `nbagent: ${record.head.badge} ${line}.` }
  };
}

/** Replaces the live views of a notebook that `dead` says are dead. */
function replace(panel: NotebookPanel, record: Record_ | null, dead: (model: string) => boolean): void {
  for (const cell of panel.content.widgets) {
    if (cell.model.type !== 'code') {
      continue;
    }
    const { outputs } = (cell as CodeCell).model;
    for (let at = 0; at < outputs.length; at++) {
      const model = liveModel(outputs.get(at).toJSON());
      if (model !== null && dead(model)) {
        outputs.set(at, stranded(record));
      }
    }
  }
}

function hasLive(panel: NotebookPanel): boolean {
  return panel.content.widgets.some(
    cell =>
      cell.model.type === 'code' &&
      ((cell as CodeCell).model.outputs.toJSON() as IOutput[]).some(output => liveModel(output) !== null)
  );
}

/** Watches a notebook's kernel; `record` is what the page knows of the run in it. */
export function watchStranded(panel: NotebookPanel, record: () => Record_ | null): void {
  const context = panel.sessionContext;
  context.statusChanged.connect((_, status) => {
    if (GONE.has(status)) {
      replace(panel, record(), () => true);
    }
  });
  /** A notebook that was saved while a run went on: its kernel says whether the run's view still lives. */
  const look = async (): Promise<void> => {
    await Promise.all([panel.context.ready, context.ready]);
    if (panel.isDisposed || !hasLive(panel)) {
      return;
    }
    const kernel = context.session?.kernel;
    const reply = await kernel?.requestCommInfo({ target_name: 'jupyter.widget' }).catch(() => null);
    if (panel.isDisposed || (kernel && reply?.content.status !== 'ok')) {
      return;
    }
    const known = reply?.content.status === 'ok' ? reply.content.comms : {};
    replace(panel, null, model => !(model in known));
  };
  context.kernelChanged.connect((_, change) => {
    if (change.oldValue && change.oldValue.id !== change.newValue?.id) {
      replace(panel, record(), () => true);
    }
  });
  void look();
}
