/** The end of a run: files changed, with their diffs, and one line that says it all. */

import { drawDiff } from './diff';
import { h, icon } from './dom';
import type { ChangedFile, Receipt } from './record';
import type { Host } from './view';

const SIGNS: Record<string, string> = { added: 'A', modified: 'M', deleted: 'D', renamed: 'R' };

/** Whether a run ended otherwise than it should. */
export function isBad(reason: string): boolean {
  return ['error', 'stopped', 'blocked', 'limit', 'length'].includes(reason);
}

/** A changed file: its name, its counts, and its diff when opened. */
export function drawFile(file: ChangedFile, host?: Host): HTMLElement {
  const counts = h(
    'span',
    { class: 'nba-facts' },
    h('span', { class: 'nba-plus' }, `+${file.additions}`),
    ' ',
    h('span', { class: 'nba-minus' }, `−${file.deletions}`)
  );
  const body = h('div', { class: 'nba-tool-body' });
  const details = h(
    'details',
    {
      class: 'nba-tool nba-file',
      ontoggle: () => {
        if (details.open && !body.firstChild) {
          body.append(
            file.diff
              ? drawDiff(file.diff, file.path, `Changes in ${file.path}`)
              : h('div', { class: 'nba-small' }, 'No diff kept.')
          );
          if (host?.openFile && file.status !== 'deleted') {
            const open = host.openFile.bind(host);
            body.append(
              h('button', { type: 'button', class: 'nba-link', onclick: () => open(file.path) }, 'Open the file')
            );
          }
        }
      }
    },
    h(
      'summary',
      { class: 'nba-tool-head' },
      h('span', { class: 'nba-sign', 'data-status': file.status, title: file.status }, SIGNS[file.status] ?? '·'),
      h('span', { class: 'nba-sr' }, file.status),
      h('code', { class: 'nba-tool-title', dir: 'ltr' }, file.path),
      counts
    ),
    body
  );
  return details;
}

export function drawReceipt(receipt: Receipt, host: Host): HTMLElement {
  const section = h('section', { class: 'nba-receipt', 'aria-label': 'Receipt', 'data-reason': receipt.reason });
  if (receipt.files?.length) {
    const n = receipt.files.length;
    section.append(h('div', { class: 'nba-label' }, `${n} ${n === 1 ? 'file' : 'files'} changed`));
    for (const file of receipt.files) {
      section.append(drawFile(file, host));
    }
  }
  for (const note of receipt.notes ?? []) {
    section.append(h('div', { class: 'nba-line', 'data-level': 'info', dir: 'auto' }, icon('info'), note));
  }
  const bad = isBad(receipt.reason);
  section.append(
    h(
      'div',
      { class: 'nba-receipt-line', 'data-end': bad ? 'bad' : 'good', dir: 'auto' },
      icon(bad ? 'warn' : 'check'),
      h('span', {}, receipt.line)
    )
  );
  return section;
}
