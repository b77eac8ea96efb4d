/**
 * The record: one JSON value that describes a run, live and afterwards (docs/reference/record.md).
 * Values and one pure function; no DOM here.
 */

export interface Rule {
  permission?: string;
  pattern?: string;
  action?: string;
  layer?: string;
}

export interface Head {
  agent: string;
  badge: string;
  writes: string;
  model: string;
  root: string;
  plan: string;
  phase: string;
  step: number;
  tokens: number;
  context: number;
  window: number;
  started: number;
  seconds: number;
  waiting: string;
  title: string;
}

interface Base {
  id: string;
  parent?: string;
  /** Output or diff is shortened; the whole comes on `fetch`. */
  cut?: boolean;
}

export interface TextItem extends Base {
  kind: 'text';
  text: string;
  partial?: boolean;
}

export interface ReasoningItem extends Base {
  kind: 'reasoning';
  text: string;
}

export interface ToolItem extends Base {
  kind: 'tool';
  name: string;
  title: string;
  state: 'writing' | 'pending' | 'running' | 'completed' | 'error';
  input: Record<string, unknown>;
  output: string;
  error: string;
  rule: Rule | null;
  metadata: Record<string, unknown>;
  seconds: number | null;
  size: number;
  effect: string;
  refused: boolean;
  images: { mime: string; data: string }[];
}

export type Pair = [string, string];

export interface AskItem extends Base {
  kind: 'ask';
  title: string;
  permission: string;
  patterns: string[];
  rule: Rule | null;
  preview: { kind: string; text: string; language?: string } | null;
  remember: Pair[];
  suggest: Pair[];
  notes: string[];
  reply: '' | 'once' | 'always' | 'reject' | 'expired';
  feedback: string;
  by: string;
}

export interface Field {
  header: string;
  question: string;
  options: { label: string; description: string }[];
  multiple: boolean;
  custom: boolean;
}

export interface QuestionItem extends Base {
  kind: 'question';
  title: string;
  questions: Field[];
  answers: string[][] | null;
  /** `open` (or absent) while it waits; `declined` and `expired` are ends without answers. */
  status?: string;
}

export interface ReviewItem extends Base {
  kind: 'review';
  path: string;
  text: string;
  hash: string;
  diff: string;
  warnings: string[];
  status: 'awaiting' | 'approved' | 'revised' | 'rejected' | 'expired';
  edited: boolean;
  comment: string;
  stale: boolean;
  action: string;
  by: string;
}

export interface NoticeItem extends Base {
  kind: 'notice';
  text: string;
  level: string;
}

export interface RetryItem extends Base {
  kind: 'retry';
  attempt: number;
  error: string;
  wait: number;
  until: number;
  done: boolean;
}

export interface CompactionItem extends Base {
  kind: 'compaction';
  status: string;
  summary: string;
  before: number;
  after: number;
  error: string;
}

export interface AgentItem extends Base {
  kind: 'agent';
  agent: string;
  previous: string;
  badge: string;
  writes: string;
}

export interface Todo {
  content: string;
  status: string;
  priority?: string;
}

export interface TodoItem extends Base {
  kind: 'todo';
  todos: Todo[];
}

export interface ErrorItem extends Base {
  kind: 'error';
  message: string;
}

export type Item =
  | TextItem
  | ReasoningItem
  | ToolItem
  | AskItem
  | QuestionItem
  | ReviewItem
  | NoticeItem
  | RetryItem
  | CompactionItem
  | AgentItem
  | TodoItem
  | ErrorItem;

export interface ChangedFile {
  path: string;
  status: string;
  additions: number;
  deletions: number;
  diff?: string;
}

export interface Receipt {
  files: ChangedFile[];
  notes: string[];
  plan: string;
  tokens: Record<string, number>;
  seconds: number;
  cost: number | null;
  reason: string;
  line: string;
  cut?: boolean;
}

export type State = 'running' | 'waiting' | 'done';

export interface Record_ {
  version: number;
  state: State;
  head: Head;
  items: Item[];
  receipt: Receipt | null;
}

export interface Patch {
  kind: 'patch';
  seq?: number;
  head?: Partial<Head>;
  items?: Item[];
  append?: Record<string, { field: string; text: string }>;
  state?: State;
  receipt?: Receipt | null;
}

/** What the kernel sends besides patches. */
export type KernelMessage =
  Patch | { kind: 'ack'; id: string } | { kind: 'refused'; id: string; error: string } | { kind: 'full'; item: Item };

/** What the page sends. */
export type PageMessage =
  | { kind: 'alive'; seq: number; view?: string }
  | { kind: 'gone'; view: string }
  | {
      kind: 'reply';
      id: string;
      answer: 'once' | 'always' | 'reject';
      feedback: string;
      remember: Pair[] | null;
      save: boolean;
    }
  | { kind: 'answers'; id: string; answers: string[][] | null }
  | {
      kind: 'verdict';
      id: string;
      hash: string;
      action: 'build' | 'later' | 'revise' | 'reject';
      text: string;
      comment: string;
    }
  | { kind: 'stop' }
  | { kind: 'fetch'; id: string };

export const EMPTY_HEAD: Head = {
  agent: '',
  badge: '',
  writes: '',
  model: '',
  root: '',
  plan: '',
  phase: '',
  step: 0,
  tokens: 0,
  context: 0,
  window: 0,
  started: 0,
  seconds: 0,
  waiting: '',
  title: ''
};

/** A whole record out of whatever came: missing or wrong fields get their empty values. */
export function normal(value: unknown): Record_ {
  const raw = (value && typeof value === 'object' ? value : {}) as Partial<Record_>;
  const items = Array.isArray(raw.items) ? raw.items : [];
  return {
    version: typeof raw.version === 'number' ? raw.version : 1,
    state: raw.state === 'running' || raw.state === 'waiting' ? raw.state : 'done',
    head: { ...EMPTY_HEAD, ...(raw.head && typeof raw.head === 'object' ? raw.head : {}) },
    items: items.filter(
      item => item && typeof item === 'object' && typeof item.id === 'string' && typeof item.kind === 'string'
    ),
    receipt: raw.receipt && typeof raw.receipt === 'object' ? raw.receipt : null
  };
}

/** The parts of a record that a patch touched. */
export interface Touched {
  head: boolean;
  state: boolean;
  receipt: boolean;
  /** Ids of new items and of changed ones, in the order of the patch. */
  items: string[];
}

/**
 * Folds a patch into a record, in place, and says what it touched.
 * `index` maps item ids to places in `record.items` and is kept up to date.
 */
export function fold(record: Record_, index: Map<string, number>, patch: Patch): Touched {
  const touched: Touched = { head: false, state: false, receipt: false, items: [] };
  if (patch.head) {
    Object.assign(record.head, patch.head);
    touched.head = true;
  }
  if (patch.state && patch.state !== record.state) {
    record.state = patch.state;
    touched.state = true;
  }
  if (patch.receipt) {
    record.receipt = patch.receipt;
    touched.receipt = true;
  }
  const ids = new Set<string>();
  for (const item of patch.items ?? []) {
    const place = index.get(item.id);
    if (place === undefined) {
      index.set(item.id, record.items.length);
      record.items.push(item);
    } else {
      record.items[place] = item;
    }
    ids.add(item.id);
  }
  for (const [id, more] of Object.entries(patch.append ?? {})) {
    const place = index.get(id);
    if (place === undefined) {
      continue;
    }
    const item = { ...record.items[place] } as unknown as Record<string, unknown>;
    const before = item[more.field];
    item[more.field] = (typeof before === 'string' ? before : '') + more.text;
    record.items[place] = item as unknown as Item;
    ids.add(id);
  }
  touched.items = [...ids];
  return touched;
}

/** Whether an item waits for a person. */
export function isOpen(item: Item): boolean {
  switch (item.kind) {
    case 'ask':
      return !item.reply;
    case 'question':
      return !item.answers && (!item.status || item.status === 'open');
    case 'review':
      return item.status === 'awaiting';
    default:
      return false;
  }
}
