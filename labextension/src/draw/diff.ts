/** A unified diff as rows with numbers, signs and syntax colours. */

import { colour, languageOf } from './colour';
import { h } from './dom';

export interface Row {
  kind: 'add' | 'del' | 'same' | 'hunk' | 'file' | 'note';
  old: number | null;
  now: number | null;
  text: string;
}

/**
 * Rows of a unified diff. Inside a hunk its line counts say what is content, so that a removed line that looks like a
 * header stays a removed line.
 */
export function parseDiff(diff: string): Row[] {
  const rows: Row[] = [];
  const lines = diff.split('\n');
  if (lines[lines.length - 1] === '') {
    lines.pop();
  }
  let [old, now, oldLeft, nowLeft] = [0, 0, 0, 0];
  const plain = (kind: Row['kind'], text: string): void => {
    rows.push({ kind, old: null, now: null, text });
  };
  let inCell = false;
  for (const line of lines) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/.exec(line);
    if (oldLeft <= 0 && nowLeft <= 0 && hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[3])];
      [oldLeft, nowLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
      plain('hunk', hunk[5].trim());
    } else if (line.startsWith('\\')) {
      if (!inCell) {
        plain('note', line.slice(1).trim());
      }
    } else if (oldLeft <= 0 && nowLeft <= 0) {
      if (line.startsWith('+++ ')) {
        plain('file', name(line.slice(4)));
        inCell = CELL.test(line); // cells end without a newline as a rule
      } else if (!HEADER.test(line)) {
        plain('note', line);
      }
    } else if (line.startsWith('+')) {
      rows.push({ kind: 'add', old: null, now: now++, text: line.slice(1) });
      nowLeft--;
    } else if (line.startsWith('-')) {
      rows.push({ kind: 'del', old: old++, now: null, text: line.slice(1) });
      oldLeft--;
    } else {
      rows.push({ kind: 'same', old: old++, now: now++, text: line.slice(1) });
      oldLeft--;
      nowLeft--;
    }
  }
  return rows;
}

const HEADER = /^(--- |diff |index |new file|deleted file|old mode|new mode|similarity|rename )/;

const CELL = /\.ipynb cell /;

function name(header: string): string {
  return header.replace(/\t.*$/, '').replace(/^[ab]\//, '');
}

const SIGN: Record<Row['kind'], string> = { add: '+', del: '-', same: ' ', hunk: '', file: '', note: '' };
const PIECE = 400;

function line(row: Row, language: string): HTMLElement {
  if (row.kind === 'hunk' || row.kind === 'file' || row.kind === 'note') {
    return h('div', { class: `nba-row nba-row-${row.kind}` }, row.text || '⋯');
  }
  const code = h('span', { class: 'nba-row-code' });
  code.append(colour(row.text, language));
  return h(
    'div',
    { class: `nba-row nba-row-${row.kind}` },
    h('span', { class: 'nba-row-no', 'aria-hidden': true, 'data-n': row.old ?? '' }),
    h('span', { class: 'nba-row-no', 'aria-hidden': true, 'data-n': row.now ?? '' }),
    h('span', { class: 'nba-row-sign' }, SIGN[row.kind]),
    code
  );
}

/** The diff's element; long ones come in pieces. */
export function drawDiff(diff: string, path: string, label = 'Diff'): HTMLElement {
  const rows = parseDiff(diff);
  const files = rows.filter(row => row.kind === 'file').length;
  const plain = files > 1 ? rows : rows.filter(row => row.kind !== 'file');
  const shown = plain[0]?.kind === 'hunk' && !plain[0].text ? plain.slice(1) : plain;
  const body = h('div', { class: 'nba-diff-body' });
  const frame = h('div', { class: 'nba-diff', role: 'region', 'aria-label': label, tabindex: 0, dir: 'ltr' }, body);
  let at = 0;
  let language = languageOf(path || (rows.find(row => row.kind === 'file')?.text ?? ''));
  const more = (): void => {
    for (const row of shown.slice(at, at + PIECE)) {
      if (row.kind === 'file') {
        language = languageOf(row.text);
      }
      body.append(line(row, language));
    }
    at += PIECE;
    if (at < shown.length) {
      const left = shown.length - at;
      const button = h(
        'button',
        {
          type: 'button',
          class: 'nba-link',
          onclick: () => {
            button.remove();
            more();
          }
        },
        `Show ${Math.min(PIECE, left)} more of ${left} lines`
      );
      frame.append(button);
    }
  };
  more();
  return frame;
}

/** Added and removed lines of a unified diff. */
export function tally(diff: string): { additions: number; deletions: number } {
  let additions = 0;
  let deletions = 0;
  for (const row of parseDiff(diff)) {
    additions += row.kind === 'add' ? 1 : 0;
    deletions += row.kind === 'del' ? 1 : 0;
  }
  return { additions, deletions };
}
