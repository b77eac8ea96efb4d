/** Commands on the notebook in front: plan cell, build cell, stop, undo. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, type ICommandPalette } from '@jupyterlab/apputils';
import type { CodeCell } from '@jupyterlab/cells';
import { NotebookActions, type INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { IOutput, IStream } from '@jupyterlab/nbformat';
import type { ITranslator } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';

import { approvedForLater } from './approval';
import type { Runs } from './runs';

export const CommandIDs = {
  plan: 'nbagent:plan-cell',
  build: 'nbagent:build-cell',
  attend: 'nbagent:attend',
  stop: 'nbagent:stop',
  undo: 'nbagent:undo',
  panel: 'nbagent:show-panel'
} as const;

// the fill stays off: JupyterLab colours what has one
const svg = (path: string): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16"><g fill="none"><path class="jp-icon3" stroke="#616161" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" d="${path}"/></g></svg>`;

export const planIcon = new LabIcon({ name: 'nbagent:plan', svgstr: svg('M4 2.5h8v11H4zM6 5.5h4M6 8h4M6 10.5h2.5') });
export const buildIcon = new LabIcon({
  name: 'nbagent:build',
  svgstr: svg('M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4zM9.6 4.2l2.2 2.2')
});

/** Puts a cell with `source` below the active one, or into it when it is empty, and the cursor at its end. */
export async function putCell(panel: NotebookPanel, source: string): Promise<void> {
  const notebook = panel.content;
  const active = notebook.activeCell;
  const empty = active?.model.type === 'code' && active.model.sharedModel.getSource().trim() === '';
  if (!empty) {
    NotebookActions.insertBelow(notebook);
    if (notebook.activeCell?.model.type !== 'code') {
      NotebookActions.changeCellType(notebook, 'code');
    }
  }
  const cell = notebook.activeCell;
  if (!cell) {
    return;
  }
  cell.model.sharedModel.setSource(source);
  // before the cell is ready, the text would go in front of the magic
  await cell.ready;
  notebook.mode = 'edit';
  const { editor } = cell;
  if (editor) {
    editor.focus();
    const last = editor.lineCount - 1;
    editor.setCursorPosition({ line: last, column: editor.getLine(last)?.length ?? 0 });
  }
}

/** After *Approve, build later*: the cell that builds goes below the plan's. */
export function watchApprovals(enabled: () => boolean): void {
  NotebookActions.executed.connect((_, { notebook, cell }) => {
    if (!enabled() || cell.model.type !== 'code') {
      return;
    }
    const model = notebook.model?.sharedModel;
    const at = model?.cells.findIndex(other => other.getId() === cell.model.id) ?? -1;
    if (!model || at < 0 || !approvedForLater((cell as CodeCell).model.outputs.toJSON())) {
      return;
    }
    const next = at + 1 < model.cells.length ? model.getCell(at + 1) : null;
    if (next && /^%%(?:nb)?build\b/.test(next.getSource())) {
      return;
    }
    const magic = /^%%nbplan\b/m.test(cell.model.sharedModel.getSource()) ? '%%nbbuild' : '%%build';
    if (next && next.cell_type === 'code' && next.getSource() === '') {
      next.setSource(magic);
    } else {
      model.insertCell(at + 1, { cell_type: 'code', source: magic, metadata: {}, outputs: [] } as never);
    }
  });
}

/** The text that a quiet execution printed. */
async function quietly(panel: NotebookPanel, code: string): Promise<string> {
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) {
    return '';
  }
  const pieces: string[] = [];
  const future = kernel.requestExecute({ code, store_history: false, allow_stdin: false });
  future.onIOPub = message => {
    const content = message.content as unknown as IOutput & { data?: Record<string, unknown>; evalue?: string };
    const type = message.header.msg_type;
    if (type === 'stream') {
      pieces.push(String((content as unknown as IStream).text));
    } else if (type === 'display_data' || type === 'execute_result') {
      pieces.push(String(content.data?.['text/plain'] ?? ''));
    } else if (type === 'error') {
      pieces.push(String(content.evalue ?? ''));
    }
  };
  await future.done;
  return pieces
    .join('\n')
    .replace(/\x1b\[[0-9;]*m/g, '')
    .trim();
}

export function addCommands(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  runs: Runs,
  translator: ITranslator,
  palette: ICommandPalette | null
): void {
  const trans = translator.load('nbagent');
  const current = (): NotebookPanel | null => {
    const panel = tracker.currentWidget;
    return panel && (panel === app.shell.currentWidget || app.shell.currentWidget === null)
      ? panel
      : tracker.currentWidget;
  };
  const isEnabled = (): boolean => current() !== null;
  const category = trans.__('nbagent');
  const { commands } = app;
  commands.addCommand(CommandIDs.plan, {
    label: trans.__('Plan cell'),
    caption: trans.__('Insert a %1 cell: the agent reads, thinks, and writes one plan', '%%plan'),
    icon: planIcon,
    isEnabled,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const panel = current();
      if (panel) {
        await putCell(panel, '%%plan\n');
      }
    }
  });
  commands.addCommand(CommandIDs.build, {
    label: trans.__('Build cell'),
    caption: trans.__('Insert a %1 cell: the agent carries out the approved plan, or what you write', '%%build'),
    icon: buildIcon,
    isEnabled,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const panel = current();
      if (panel) {
        await putCell(panel, '%%build\n');
      }
    }
  });
  commands.addCommand(CommandIDs.attend, {
    label: trans.__('Go to what waits for you'),
    caption: trans.__('Move the focus to the question, the ask or the plan that waits for an answer'),
    isEnabled: () => runs.record(current())?.state === 'waiting',
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => {
      runs.attend(current());
    }
  });
  commands.addCommand(CommandIDs.stop, {
    label: trans.__('Stop the agent'),
    caption: trans.__('Stop the run in this notebook; what it did so far stays'),
    isEnabled: () => {
      const state = runs.record(current())?.state;
      return state === 'running' || state === 'waiting';
    },
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const panel = current();
      if (panel && !runs.notebook(panel)?.send({ kind: 'message', message: { kind: 'stop' } })) {
        await panel.sessionContext.session?.kernel?.interrupt();
      }
    }
  });
  commands.addCommand(CommandIDs.undo, {
    label: trans.__('Undo the last build'),
    caption: trans.__('Put files back as they were before the last build cell'),
    isEnabled,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const panel = current();
      if (!panel) {
        return;
      }
      const sure = await showDialog({
        title: trans.__('Undo the last build'),
        body: trans.__(
          'Put the files back as they were before the last build cell? %1 brings the changes back.',
          '%agent redo'
        ),
        buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Put back') })]
      });
      if (!sure.button.accept) {
        return;
      }
      const text = await quietly(panel, '%agent undo');
      const body = document.createElement('pre');
      body.textContent = text || trans.__('There was nothing to undo.');
      const { Widget } = await import('@lumino/widgets');
      await showDialog({
        title: trans.__('Undo the last build'),
        body: new Widget({ node: body }),
        buttons: [Dialog.okButton({ label: trans.__('Close') })]
      });
    }
  });
  for (const command of [CommandIDs.plan, CommandIDs.build, CommandIDs.attend, CommandIDs.stop, CommandIDs.undo]) {
    palette?.addItem({ command, category });
  }
}
