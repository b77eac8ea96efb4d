import { YNotebook } from '@jupyter/ydoc';
import { beforeEach, describe, expect, it } from 'vitest';

import { apply, cellsOf, Refused, smallest, type Operation } from '../cells';
import { approvedForLater } from '../approval';
import { promptMode } from '../highlight';
import { OURS } from '../link';
import { lineDiff } from '../panel';
import { serverPath } from '../runs';
import { parseDiff } from '../draw/diff';

let notebook: YNotebook;

beforeEach(() => {
  notebook = YNotebook.create() as YNotebook;
  notebook.insertCells(
    0,
    ['a', 'b', 'c'].map(id => ({
      cell_type: 'code',
      id,
      source: `${id} = 1\nprint(${id})`,
      metadata: { tag: id },
      outputs: []
    })) as never
  );
});

const sources = (): string[] => notebook.cells.map(cell => cell.getSource());
const ids = (): string[] => notebook.cells.map(cell => cell.getId());
const run = (...operations: Operation[]) => apply(notebook, operations);

describe('cells', () => {
  it('does every operation', () => {
    const out = run(
      { op: 'replace', id: 'a', expected: 'a = 1\nprint(a)', source: 'a = 2' },
      { op: 'edit', id: 'b', old: '= 1', new: '= 5' },
      { op: 'insert', after: 'a', source: '# T', cell_type: 'markdown', new_id: 'new' },
      { op: 'move', id: 'c', at: 'start' },
      { op: 'type', id: 'c', cell_type: 'raw' }
    );
    expect(ids()).toEqual(['c', 'a', 'new', 'b']);
    expect(sources()).toEqual(['c = 1\nprint(c)', 'a = 2', '# T', 'b = 5\nprint(b)']);
    expect(notebook.cells.map(cell => cell.cell_type)).toEqual(['raw', 'code', 'markdown', 'code']);
    expect(notebook.getCell(0).getMetadata()).toEqual({ tag: 'c' });
    expect(out.newIds).toEqual(['new']);
    expect(out.lines).toHaveLength(5);
    expect(out.changes.map(change => change.kind)).toEqual(['changed', 'changed', 'inserted', 'moved', 'retyped']);
  });

  it.each<[string, Operation, RegExp]>([
    ['stale', { op: 'replace', id: 'b', expected: 'old', source: 'x' }, /changed since it was read[^]*b = 1/],
    ['unknown', { op: 'delete', id: 'zz' }, /no cell with the id zz/],
    ['no anchor', { op: 'insert', source: 'x' }, /exactly one of/],
    ['two anchors', { op: 'insert', source: 'x', after: 'a', at: 'end' }, /exactly one of/],
    ['not there', { op: 'edit', id: 'b', old: 'zzz', new: '' }, /is not in cell b/],
    ['twice', { op: 'edit', id: 'b', old: 'b', new: 'x' }, /2 times/],
    ['itself', { op: 'move', id: 'b', after: 'b' }, /next to itself/],
    ['type', { op: 'type', id: 'b', cell_type: 'x' as never }, /code, markdown or raw/],
    ['operation', { op: 'explode' as never, id: 'b' }, /no operation explode/],
    ['id', { op: 'insert', at: 'end', source: '', new_id: 'a' }, /already/]
  ])('refuses the whole list when one is %s', (_, operation, why) => {
    const before = JSON.stringify(notebook.toJSON());
    expect(() => run({ op: 'replace', id: 'a', source: 'first' }, operation)).toThrow(why);
    expect(() => run(operation)).toThrow(Refused);
    expect(JSON.stringify(notebook.toJSON())).toBe(before);
  });

  it('goes on with what it has just made', () => {
    run(
      { op: 'insert', at: 'start', source: 'x', new_id: 'n' },
      { op: 'edit', id: 'n', old: 'x', new: 'y' },
      { op: 'move', id: 'a', at: 'end' },
      { op: 'edit', id: 'a', old: '= 1', new: '= 9' },
      { op: 'edit', id: 'a', old: '= 9', new: '= 8' },
      { op: 'type', id: 'b', cell_type: 'markdown' },
      { op: 'insert', before: 'b', source: 'z', new_id: 'm' },
      { op: 'delete', id: 'c' }
    );
    expect(ids()).toEqual(['n', 'm', 'b', 'a']);
    expect(sources()).toEqual(['y', 'z', 'b = 1\nprint(b)', 'a = 8\nprint(a)']);
    expect(notebook.getCell(3).getMetadata()).toEqual({ tag: 'a' });
  });

  it('leaves the running cell alone', () => {
    expect(() => apply(notebook, [{ op: 'delete', id: 'a' }], 'a')).toThrow(/runs now/);
  });

  it('can be undone in one go', () => {
    const before = sources();
    notebook.clearUndoHistory();
    run({ op: 'insert', at: 'end', source: 'x' }, { op: 'delete', id: 'a' });
    notebook.undo();
    expect(sources()).toEqual(before);
    notebook.redo();
    expect(sources()).toEqual([before[1], before[2], 'x']);
  });

  it('replaces the smallest part, whole characters only', () => {
    expect(smallest('abcdef', 'abXdef')).toEqual({ start: 2, end: 3, text: 'X' });
    expect(smallest('aa', 'aaa')).toEqual({ start: 2, end: 2, text: 'a' });
    expect(smallest('', 'x')).toEqual({ start: 0, end: 0, text: 'x' });
    for (const [before, after] of [
      ['a😀b', 'a😁b'],
      ['😀', '😀😀'],
      ['x🙂', 'x😀'],
      ['👩‍👧', '👩‍👦']
    ]) {
      const { start, end, text } = smallest(before, after);
      expect(before.slice(0, start) + text + before.slice(end)).toBe(after);
      expect(text).toBe(text.toWellFormed?.() ?? text);
      expect(before.slice(0, start).toWellFormed?.() ?? '').toBe(before.slice(0, start));
    }
  });

  it('tells cells with outputs of a size that travels', () => {
    notebook.getCell(0).setSource('plot()');
    (notebook.getCell(0) as unknown as { setOutputs(o: object[]): void }).setOutputs([
      { output_type: 'display_data', data: { 'image/png': 'A'.repeat(300_000) }, metadata: {} }
    ]);
    const cells = cellsOf(notebook) as { id: string; outputs: unknown[] }[];
    expect(cells.map(cell => cell.id)).toEqual(['a', 'b', 'c']);
    expect(JSON.stringify(cells).length).toBeLessThan(120_000);
  });
});

describe('prompts', () => {
  it.each([
    ['%%plan\nx', 'plan'],
    ['# c\n\n%%build --auto\nx', 'build'],
    ['%%nbplan', 'plan'],
    ['x = 1\n%%plan', null],
    ['%%planet', null],
    ['%plan x', null],
    ['', null]
  ])('%j', (source, mode) => {
    expect(promptMode(source)).toBe(mode);
  });

  it('knows when nbagent is there', () => {
    for (const code of [
      '%load_ext nbagent',
      '%%plan\nx',
      'import os\n%agent status',
      'r = %plan x',
      '%reload_ext nbagent'
    ]) {
      expect(OURS.test(code), code).toBe(true);
    }
    for (const code of ['%load_ext autoreload', 'plan = 3', 'print("%plans")', '%%bash\nls']) {
      expect(OURS.test(code), code).toBe(false);
    }
  });
});

describe('places', () => {
  it.each([
    ['src/a.py', '/home/ada/shop', '/home/ada', 'shop/src/a.py'],
    ['src/a.py', '/home/ada/shop', '~', 'shop/src/a.py'],
    ['src/a.py', '/home/ada/work/shop', '~/work', 'shop/src/a.py'],
    ['../b.py', '/srv/x/y', '/srv', 'x/b.py'],
    ['/etc/passwd', '/srv/x', '/srv', null],
    ['a.py', '/srv/x', '', null]
  ])('%s in %s, served from %s', (path, root, server, expected) => {
    expect(serverPath(path, root, server)).toBe(expected);
  });

  it('sees an approval for later', () => {
    const output = (reason: string) => [
      {
        output_type: 'display_data',
        data: { 'application/vnd.nbagent.record+json': { receipt: { reason } } },
        metadata: {}
      }
    ];
    expect(approvedForLater(output('approved') as never)).toBe(true);
    expect(approvedForLater(output('stop') as never)).toBe(false);
    expect(approvedForLater([{ output_type: 'stream', name: 'stdout', text: 'x' }])).toBe(false);
  });

  it('diffs cells', () => {
    const kinds = parseDiff(lineDiff('a\nb\nc', 'a\nB\nc')).map(row => row.kind + row.text);
    expect(kinds).toEqual(['hunk', 'samea', 'delb', 'addB', 'samec']);
    expect(parseDiff(lineDiff('', 'x\ny')).map(row => row.kind)).toEqual(['hunk', 'add', 'add']);
  });
});
