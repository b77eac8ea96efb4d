import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { nullTranslator } from '@jupyterlab/translation';
import { beforeEach, describe, expect, it } from 'vitest';

import { normal, type Record_ } from '../draw/record';
import { Runs } from '../runs';
import { StatusItem } from '../status';

function notebook(cells: number) {
  const node = document.createElement('div');
  for (let i = 0; i < cells; i++) {
    node.append(document.createElement('div'));
    node.lastElementChild?.classList.add('jp-Cell');
  }
  document.body.append(node);
  const panel = { node } as unknown as NotebookPanel;
  const tracker = { find: (test: (panel: NotebookPanel) => boolean) => (test(panel) ? panel : undefined) };
  const draw = (cell: number, state: Record_['state'], started: number): Record_ => {
    const record = normal({ state, head: { started } });
    node.children[cell].dispatchEvent(new CustomEvent('nbagent:record', { bubbles: true, detail: record }));
    return record;
  };
  return { panel, draw, runs: new Runs(tracker as unknown as INotebookTracker) };
}

beforeEach(() => {
  document.body.replaceChildren();
});

describe('runs', () => {
  it('ends a played run with its record, which keeps no times', () => {
    const { panel, draw, runs } = notebook(2);
    draw(0, 'done', 0);
    draw(1, 'waiting', 5);
    const ended = draw(1, 'done', 0);
    expect(runs.record(panel)).toBe(ended);
    expect(runs.wasLive(panel)).toBe(true);
  });

  it('is not told by a record of another cell that an older run is the newest', () => {
    const { panel, draw, runs } = notebook(2);
    const running = draw(1, 'running', 5);
    draw(0, 'done', 0);
    draw(0, 'done', 4);
    expect(runs.record(panel)).toBe(running);
  });

  it('has not seen a saved run while it went on', () => {
    const { panel, draw, runs } = notebook(1);
    draw(0, 'done', 3);
    expect(runs.wasLive(panel)).toBe(false);
    draw(0, 'done', 3);
    expect(runs.wasLive(panel)).toBe(false);
  });
});

describe('the status bar', () => {
  it.each([
    ['stop', 'done'],
    ['rejected', 'done'],
    ['error', 'failed'],
    ['stopped', 'stopped'],
    ['limit', 'stopped']
  ])('says of a run that ended with %s: %s', (reason, word) => {
    const item = new StatusItem(nullTranslator, () => undefined);
    item.update_(normal({ head: { badge: 'BUILD' }, receipt: { reason, line: '' } }));
    expect(item.node.textContent).toBe(`BUILD${word}`);
    item.dispose();
  });
});
