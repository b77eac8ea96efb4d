/**
 * Edits of the open notebook in its shared model: undoable, on top of unsaved work, never through the file.
 * A list of operations is checked as a whole before the first of them changes anything.
 */

import type { ISharedCell, ISharedNotebook, SharedCell } from '@jupyter/ydoc';

export type CellType = 'code' | 'markdown' | 'raw';

/**
 * One operation. `expected` is the source that the edit was made against; anchors of `insert` and `move` are the id of
 * the cell before (`after`), of the cell behind (`before`), or `at`.
 */
export interface Operation {
  op: 'insert' | 'replace' | 'edit' | 'delete' | 'move' | 'type';
  id?: string;
  expected?: string;
  source?: string;
  cell_type?: CellType;
  after?: string;
  before?: string;
  at?: 'start' | 'end';
  old?: string;
  new?: string;
  all?: boolean;
  /** The id that an inserted cell gets. */
  new_id?: string;
}

/** One cell before and after, for a person to look at. */
export interface CellChange {
  id: string;
  kind: 'inserted' | 'changed' | 'deleted' | 'moved' | 'retyped';
  before: string;
  after: string;
}

export interface Outcome {
  lines: string[];
  newIds: string[];
  changes: CellChange[];
}

/** Why a list of operations was refused; nothing was changed. */
export class Refused extends Error {}

/** A cell as it will be. `cell`: the one that is in the document now; `remade`: it must be taken out and put in again. */
interface Draft {
  id: string;
  source: string;
  type: string;
  cell: ISharedCell | null;
  remade: boolean;
}

const TYPES = new Set(['code', 'markdown', 'raw']);

function quote(text: string): string {
  const short = text.length > 600 ? `${text.slice(0, 600)}…` : text;
  return short === '' ? 'It is empty now.' : `It is now:\n${short}`;
}

function find(drafts: Draft[], id: string | undefined): number {
  const at = drafts.findIndex(draft => draft.id === id);
  if (at < 0) {
    throw new Refused(`There is no cell with the id ${id ?? '(none given)'} in the open notebook. Read it again.`);
  }
  return at;
}

function place(drafts: Draft[], operation: Operation): number {
  const given = [operation.after, operation.before, operation.at].filter(value => value !== undefined);
  if (given.length !== 1) {
    throw new Refused(`${operation.op} needs exactly one of after, before and at.`);
  }
  if (operation.after !== undefined) {
    return find(drafts, operation.after) + 1;
  }
  if (operation.before !== undefined) {
    return find(drafts, operation.before);
  }
  return operation.at === 'start' ? 0 : drafts.length;
}

function edited(draft: Draft, operation: Operation): string {
  const { old = '', new: now = '' } = operation;
  if (!old) {
    throw new Refused('edit needs the text to replace (old).');
  }
  const times = draft.source.split(old).length - 1;
  if (times === 0) {
    throw new Refused(`The text to replace is not in cell ${draft.id}. ${quote(draft.source)}`);
  }
  if (times > 1 && !operation.all) {
    throw new Refused(`The text to replace is ${times} times in cell ${draft.id}: give more of it, or set all.`);
  }
  return operation.all ? draft.source.split(old).join(now) : draft.source.replace(old, () => now);
}

/** The smallest part of `before` to replace so that it becomes `after`: cursors and undo survive outside of it. */
export function smallest(before: string, after: string): { start: number; end: number; text: string } {
  let start = 0;
  const least = Math.min(before.length, after.length);
  while (start < least && before[start] === after[start]) {
    start++;
  }
  let tail = 0;
  while (tail < least - start && before[before.length - 1 - tail] === after[after.length - 1 - tail]) {
    tail++;
  }
  // never between the halves of a character
  if (start > 0 && isHigh(before.charCodeAt(start - 1))) {
    start--;
  }
  if (tail > 0 && isLow(before.charCodeAt(before.length - tail))) {
    tail--;
  }
  return { start, end: before.length - tail, text: after.slice(start, after.length - tail) };
}

function isHigh(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}

function isLow(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}

/** Carries the operations out on drafts. */
function revise(operations: readonly Operation[], drafts: Draft[], running: string): Outcome {
  const out: Outcome = { lines: [], newIds: [], changes: [] };
  const first = new Map(drafts.map(draft => [draft.id, draft.source]));
  for (const operation of operations) {
    if (operation.op === 'insert') {
      insert(operation, drafts, out);
      continue;
    }
    const at = find(drafts, operation.id);
    const draft = drafts[at];
    const { id } = draft;
    if (
      operation.expected !== undefined &&
      operation.expected !== first.get(id) &&
      operation.expected !== draft.source
    ) {
      throw new Refused(`Cell ${id} changed since it was read. ${quote(draft.source)}`);
    }
    if (id === running) {
      throw new Refused(`Cell ${id} is the one that runs now; it cannot be changed while it runs.`);
    }
    switch (operation.op) {
      case 'replace':
      case 'edit': {
        const before = draft.source;
        const after = operation.op === 'edit' ? edited(draft, operation) : operation.source;
        if (typeof after !== 'string') {
          throw new Refused('replace needs a source.');
        }
        draft.source = after;
        out.lines.push(before === after ? `Cell ${id} is the same already` : `Changed cell ${id}`);
        out.changes.push({ id, kind: 'changed', before, after });
        break;
      }
      case 'delete':
        drafts.splice(at, 1);
        out.lines.push(`Deleted cell ${id}`);
        out.changes.push({ id, kind: 'deleted', before: draft.source, after: '' });
        break;
      case 'move': {
        const anchor = operation.after ?? operation.before;
        if (anchor === id) {
          throw new Refused(`Cell ${id} cannot be moved next to itself.`);
        }
        drafts.splice(at, 1);
        const to = place(drafts, operation);
        drafts.splice(to, 0, draft);
        draft.remade = true;
        out.lines.push(`Moved cell ${id} to place ${to + 1}`);
        out.changes.push({ id, kind: 'moved', before: draft.source, after: draft.source });
        break;
      }
      case 'type': {
        const type = operation.cell_type;
        if (!type || !TYPES.has(type)) {
          throw new Refused('type needs a cell_type: code, markdown or raw.');
        }
        draft.remade ||= draft.type !== type;
        draft.type = type;
        const { source } = draft;
        out.lines.push(`Cell ${id} is ${type} now`);
        out.changes.push({ id, kind: 'retyped', before: source, after: source });
        break;
      }
      default:
        throw new Refused(`There is no operation ${String(operation.op)}.`);
    }
  }
  return out;
}

function insert(operation: Operation, drafts: Draft[], out: Outcome): void {
  const type = operation.cell_type ?? 'code';
  if (!TYPES.has(type)) {
    throw new Refused('cell_type is code, markdown or raw.');
  }
  const source = operation.source ?? '';
  const at = place(drafts, operation);
  const id = operation.new_id ?? newId(drafts);
  if (drafts.some(draft => draft.id === id)) {
    throw new Refused(`There is a cell with the id ${id} already.`);
  }
  drafts.splice(at, 0, { id, source, type, cell: null, remade: true });
  out.newIds.push(id);
  out.lines.push(`Inserted ${type} cell ${id} at place ${at + 1}`);
  out.changes.push({ id, kind: 'inserted', before: '', after: source });
}

function newId(drafts: Draft[]): string {
  for (;;) {
    const id = Math.random().toString(16).slice(2, 10).padEnd(8, '0');
    if (!drafts.some(draft => draft.id === id)) {
      return id;
    }
  }
}

/** The cell that a draft becomes: what it had stays, as far as its type has it. */
function made(draft: Draft): SharedCell.Cell {
  const { id, source, type } = draft;
  const old = draft.cell?.toJSON();
  if (old && old.cell_type === type) {
    return { ...old, id, source } as SharedCell.Cell;
  }
  const cell = { cell_type: type, id, source, metadata: old?.metadata ?? {} };
  return (type === 'code' ? { ...cell, outputs: [], execution_count: null } : cell) as SharedCell.Cell;
}

/**
 * Makes the document what the drafts say. Inside of one transaction the notebook's list of cells is not kept up to date,
 * so everything is told by places in the underlying list: what goes is taken out from the end, what comes is put in in order.
 */
function write(notebook: ISharedNotebook, drafts: readonly Draft[]): void {
  const stays = new Set(drafts.filter(draft => !draft.remade).map(draft => draft.id));
  const comes = drafts.map((draft, at) => ({ at, cell: draft.remade ? made(draft) : null }));
  const before = Array.from(notebook.cells);
  notebook.transact(() => {
    for (const draft of drafts) {
      if (!draft.remade && draft.cell) {
        const source = draft.cell.getSource();
        if (source !== draft.source) {
          const { start, end, text } = smallest(source, draft.source);
          draft.cell.updateSource(start, end, text);
        }
      }
    }
    for (let at = before.length - 1; at >= 0; at--) {
      if (!stays.has(before[at].getId())) {
        notebook.deleteCell(at);
      }
    }
    for (const { at, cell } of comes) {
      if (cell) {
        notebook.insertCell(at, cell);
      }
    }
  });
}

/** Carries out all operations in one undoable transaction, or refuses and changes nothing. */
export function apply(notebook: ISharedNotebook, operations: readonly Operation[], running = ''): Outcome {
  if (!Array.isArray(operations) || !operations.length) {
    throw new Refused('There is no operation to carry out.');
  }
  const drafts: Draft[] = notebook.cells.map(cell => ({
    id: cell.getId(),
    source: cell.getSource(),
    type: cell.cell_type,
    cell,
    remade: false
  }));
  if (new Set(drafts.map(draft => draft.id)).size !== drafts.length) {
    throw new Refused('The open notebook has cells with the same id; save and reload it first.');
  }
  const out = revise(operations, drafts, running);
  write(notebook, drafts);
  return out;
}

/** Longer strings in outputs are left out: they are told by their size. */
const LONG = 100_000;

function shorten(value: unknown): unknown {
  if (typeof value === 'string') {
    return value.length > LONG ? `${value.slice(0, LONG)}…(${value.length} characters)` : value;
  }
  if (Array.isArray(value)) {
    return value.map(shorten);
  }
  if (value && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, shorten(inner)]));
  }
  return value;
}

/** The cells as nbformat has them, outputs cut to a size that travels. */
export function cellsOf(notebook: ISharedNotebook): object[] {
  return notebook.cells.map(cell => {
    const json = cell.toJSON() as unknown as Record<string, unknown>;
    return { ...json, id: cell.getId(), ...(json.outputs ? { outputs: shorten(json.outputs) } : {}) };
  });
}
