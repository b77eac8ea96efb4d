/** nbagent in JupyterLab and Notebook 7. The Python side is whole without any of this. */

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { EditorExtensionRegistry, IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { apply, Refused, type CellChange, type Operation } from './cells';
import { addCommands, CommandIDs, planIcon, watchApprovals } from './commands';
import type { KernelMessage } from './draw/record';
import { highlightPrompts, magicExtension } from './highlight';
import { dirtyPaths, LiveNotebook } from './live';
import { SidePanel } from './panel';
import { recordFactory, type Answers } from './renderer';
import { Runs, serverPath } from './runs';
import { StatusItem } from './status';
import { watchStranded } from './stranded';

const DEFAULTS = {
  highlightPrompts: true,
  liveEditing: true,
  saveAfterEdit: false,
  putBuildCellBelow: true,
  statusBar: true
};

type Settings = typeof DEFAULTS;

const record: JupyterFrontEndPlugin<void> = {
  id: 'nbagent:record',
  description: 'Draws what a finished cell of nbagent leaves in a notebook.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  activate: (_: JupyterFrontEnd, rendermime: IRenderMimeRegistry) => {
    rendermime.addFactory(recordFactory());
  }
};

const editor: JupyterFrontEndPlugin<void> = {
  id: 'nbagent:editor',
  description: 'Sets the first line of prompt cells apart.',
  autoStart: true,
  requires: [IEditorExtensionRegistry],
  activate: (_: JupyterFrontEnd, extensions: IEditorExtensionRegistry) => {
    extensions.addExtension({
      name: 'nbagent-prompt',
      factory: () => EditorExtensionRegistry.createImmutableExtension(magicExtension())
    });
  }
};

function answersOf(live: LiveNotebook): Answers {
  return {
    get linked() {
      return live.linked;
    },
    send: message => live.send({ kind: 'message', message: message as never }),
    watch: (onMessage, onLinked) => {
      const message = (_: unknown, data: unknown): void => onMessage(data as KernelMessage);
      live.messages.connect(message);
      live.changed.connect(onLinked);
      return () => {
        live.messages.disconnect(message);
        live.changed.disconnect(onLinked);
      };
    }
  };
}

/** Takes one change of a cell back; a sentence when that is refused. */
function putBack(panel: NotebookPanel, change: CellChange): string {
  const undo: Record<CellChange['kind'], Operation | null> = {
    changed: { op: 'replace', id: change.id, expected: change.after, source: change.before },
    inserted: { op: 'delete', id: change.id, expected: change.after },
    deleted: { op: 'insert', at: 'end', source: change.before, new_id: change.id },
    moved: null,
    retyped: null
  };
  const operation = undo[change.kind];
  if (!operation) {
    return 'Undo this one with Ctrl-Z in the notebook.';
  }
  try {
    apply(panel.context.model.sharedModel, [operation]);
    return '';
  } catch (reason) {
    return reason instanceof Refused ? reason.message : String(reason);
  }
}

const main: JupyterFrontEndPlugin<void> = {
  id: 'nbagent:plugin',
  description: 'Live cells, commands, prompt colours, status and side panel of nbagent.',
  autoStart: true,
  requires: [INotebookTracker, IDocumentManager],
  optional: [ITranslator, ISettingRegistry, ICommandPalette, IStatusBar, ILabShell, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    documents: IDocumentManager,
    translator_: ITranslator | null,
    registry: ISettingRegistry | null,
    palette: ICommandPalette | null,
    statusBar: IStatusBar | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null
  ) => {
    const translator = translator_ ?? nullTranslator;
    const trans = translator.load('nbagent');
    const settings: Settings = { ...DEFAULTS };
    const runs = new Runs(tracker);
    const lives = new Set<LiveNotebook>();
    const refit: (() => void)[] = [];

    const openFile = (path: string, root: string): void => {
      const known = serverPath(path, root);
      if (known === null || known.split('/').some(part => part.startsWith('.'))) {
        showPanel(); // servers hide such files; the panel has the plan and the diffs
      } else {
        void app.commands.execute('docmanager:open', { path: known });
      }
    };

    const dirty = (): string[] => dirtyPaths(documents, app.shell.widgets('main'));
    const watched = new WeakSet<object>();
    const tellDirty = (): void => lives.forEach(live => live.tellDirty());
    const watchDocuments = (): void => {
      for (const widget of app.shell.widgets('main')) {
        const context = documents.contextForWidget(widget);
        if (context && !watched.has(context)) {
          watched.add(context);
          context.model.stateChanged.connect((_, change) => change.name === 'dirty' && tellDirty());
          context.disposed.connect(tellDirty);
        }
      }
    };

    const addPanel = (panel: NotebookPanel): void => {
      const live = new LiveNotebook(panel, dirty, () => settings);
      lives.add(live);
      panel.disposed.connect(() => lives.delete(live));
      runs.add(panel, live);
      watchStranded(panel, () => runs.record(panel));
      panel.content.rendermime.addFactory(recordFactory({ openFile, answers: answersOf(live) }));
      refit.push(highlightPrompts(panel, () => settings.highlightPrompts));
      live.changed.connect(() => live.linked && live.tellDirty());
      watchDocuments();
    };
    tracker.widgetAdded.connect((_, panel) => addPanel(panel));
    tracker.forEach(addPanel);
    labShell?.layoutModified.connect(watchDocuments);
    tracker.currentChanged.connect(watchDocuments);

    const side = new SidePanel(translator, {
      openFile,
      showCell: id => {
        const panel = tracker.currentWidget;
        const cell = panel?.content.widgets.find(widget => widget.model.id === id);
        if (panel && cell) {
          panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
          void panel.content.scrollToCell(cell);
        }
      },
      putBack: change =>
        tracker.currentWidget ? putBack(tracker.currentWidget, change) : trans.__('No notebook is open.')
    });
    side.id = 'nbagent-panel';
    side.title.icon = planIcon;
    side.title.caption = trans.__('nbagent: plan, todo, changed files');
    app.shell.add(side, 'right', { rank: 900 });
    restorer?.add(side, side.id);

    const showPanel = (): void => app.shell.activateById(side.id);
    const item = new StatusItem(translator, () => runs.attend(tracker.currentWidget) || showPanel());
    const draw = (): void => {
      const panel = tracker.currentWidget;
      item.update_(runs.record(panel));
      side.show_(runs.record(panel), runs.notebook(panel)?.changes ?? []);
    };
    let state = '';
    runs.changed.connect((_, panel) => {
      if (panel === tracker.currentWidget) {
        draw();
        const now = runs.record(panel)?.state ?? '';
        if (now !== state) {
          state = now;
          app.commands.notifyCommandChanged(CommandIDs.stop);
          app.commands.notifyCommandChanged(CommandIDs.attend);
        }
      }
      reload(panel);
    });
    tracker.currentChanged.connect(draw);
    statusBar?.registerStatusItem('nbagent:status', {
      item,
      align: 'left',
      rank: 900,
      isActive: () => settings.statusBar && item.active,
      activeStateChanged: item.activeStateChanged
    });

    /** Files that a finished run changed and that are open without unsaved changes show the new text. */
    const reloaded = new WeakSet<object>();
    const reload = (panel: NotebookPanel): void => {
      const run = runs.record(panel);
      if (!run?.receipt || reloaded.has(run.receipt) || !runs.wasLive(panel)) {
        return;
      }
      reloaded.add(run.receipt);
      const changed = new Set(run.receipt.files.map(file => serverPath(file.path, run.head.root)));
      for (const widget of app.shell.widgets('main')) {
        const context = documents.contextForWidget(widget);
        if (context && context !== panel.context && changed.has(context.path) && !context.model.dirty) {
          void context.revert();
        }
      }
    };

    watchApprovals(() => settings.putBuildCellBelow);
    addCommands(app, tracker, runs, translator, palette);
    app.commands.addCommand(CommandIDs.panel, {
      label: trans.__('Show plan, todo and changes'),
      icon: planIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: showPanel
    });
    palette?.addItem({ command: CommandIDs.panel, category: trans.__('nbagent') });

    void registry?.load(main.id).then(loaded => {
      const read = (): void => {
        for (const key of Object.keys(DEFAULTS) as (keyof Settings)[]) {
          settings[key] = loaded.get(key).composite as boolean;
        }
        refit.forEach(fit => fit());
        tellDirty();
        draw();
      };
      loaded.changed.connect(read);
      read();
    });
  }
};

export default [record, editor, main];
