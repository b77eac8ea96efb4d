/** The bodies of `%%plan` and `%%build` cells are prompts: they are coloured as Markdown, their first line as what it is. */

import type { CodeCell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { RangeSetBuilder, type Extension, type Text } from '@codemirror/state';
import { Decoration, ViewPlugin, type DecorationSet, type EditorView, type ViewUpdate } from '@codemirror/view';

/** JupyterLab's Markdown. */
export const MARKDOWN = 'text/x-ipythongfm';

const PROMPT = /^%%(?:nb)?(plan|build)\b/;

/** The mode of a prompt cell, or null. Comments and empty lines above the magic are fine. */
export function promptMode(source: string): 'plan' | 'build' | null {
  for (const line of source.split('\n', 20)) {
    if (line.trim() === '' || line.startsWith('#')) {
      continue;
    }
    const match = PROMPT.exec(line);
    return match ? (match[1] as 'plan' | 'build') : null;
  }
  return null;
}

/** Keeps the MIME types of a notebook's cells right, as they are edited and as the kernel tells its language. */
export function highlightPrompts(panel: NotebookPanel, enabled: () => boolean): () => void {
  const watched = new WeakSet<object>();
  const fit = (cell: CodeCell): void => {
    const mode = enabled() ? promptMode(cell.model.sharedModel.getSource()) : null;
    const wanted = mode ? MARKDOWN : panel.content.codeMimetype;
    cell.toggleClass('nba-PromptCell', mode !== null);
    if (mode) {
      cell.node.dataset.nbaMode = mode;
    } else {
      delete cell.node.dataset.nbaMode;
    }
    if (cell.model.mimeType !== wanted && (mode || cell.model.mimeType === MARKDOWN)) {
      cell.model.mimeType = wanted;
    }
  };
  const all = (): void => {
    for (const cell of panel.content.widgets) {
      if (cell.model.type !== 'code') {
        continue;
      }
      const code = cell as CodeCell;
      if (!watched.has(code)) {
        watched.add(code);
        code.model.contentChanged.connect(() => fit(code));
        code.model.mimeTypeChanged.connect(() => fit(code));
      }
      fit(code);
    }
  };
  panel.content.modelContentChanged.connect(all);
  void panel.context.ready.then(all);
  all();
  return all;
}

function magicLine(doc: Text): number | null {
  for (let n = 1; n <= Math.min(doc.lines, 20); n++) {
    const { text } = doc.line(n);
    if (PROMPT.test(text)) {
      return n;
    }
    if (text.trim() !== '' && !text.startsWith('#')) {
      return null;
    }
  }
  return null;
}

const MAGIC = Decoration.line({ class: 'nba-magic' });

function decorate(view: EditorView): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const n = magicLine(view.state.doc);
  if (n !== null) {
    const { from } = view.state.doc.line(n);
    builder.add(from, from, MAGIC);
  }
  return builder.finish();
}

/** Sets the magic's line apart in the editor. */
export function magicExtension(): Extension {
  return ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;

      constructor(view: EditorView) {
        this.decorations = decorate(view);
      }

      update(update: ViewUpdate): void {
        if (update.docChanged) {
          this.decorations = decorate(update.view);
        }
      }
    },
    { decorations: plugin => plugin.decorations }
  );
}
