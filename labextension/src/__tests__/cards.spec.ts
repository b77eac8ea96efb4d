import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Drawing } from '../draw/drawing';
import { isBound } from '../draw/lines';
import { normal, type Item, type PageMessage, type Record_ } from '../draw/record';
import { liveModel, stranded } from '../stranded';

const sample = (name: string): Record_ =>
  JSON.parse(readFileSync(join(process.cwd(), '../tests/data/records', `${name}.json`), 'utf8'));

const ask = (id: string, more: object = {}): Item =>
  ({
    id,
    kind: 'ask',
    title: `edit ${id}.py`,
    permission: 'edit',
    patterns: [`${id}.py`],
    rule: null,
    preview: null,
    remember: [],
    suggest: [],
    notes: [],
    reply: '',
    feedback: '',
    by: '',
    ...more
  }) as Item;

/** Each test begins later than the one before: the page remembers when a key was last pressed. */
let start = 0;
let cell: HTMLElement;
let elsewhere: HTMLInputElement;

/** A drawing in a cell that can have the focus, and a field elsewhere in the page. */
function mount(value: unknown) {
  const sent: PageMessage[] = [];
  const drawing = new Drawing(cell, { send: message => sent.push(message) }, true);
  drawing.update(value);
  drawing.flush();
  return { drawing, sent, element: drawing.element };
}

const waiting = (...items: Item[]): Record_ => ({
  ...normal({ state: 'waiting', head: { badge: 'BUILD', waiting: 'you' } }),
  items
});

const press = (key: string, target: Element | null = document.activeElement): void => {
  target?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
};

const card = (element: HTMLElement, id: string): HTMLElement =>
  element.querySelector<HTMLElement>(`.nba-ask[data-id="${id}"]`)!;

beforeEach(() => {
  vi.useFakeTimers();
  vi.advanceTimersByTime((start += 100_000));
  document.body.innerHTML = '<div id="cell" tabindex="0"></div><input id="elsewhere">';
  cell = document.getElementById('cell')!;
  elsewhere = document.getElementById('elsewhere') as HTMLInputElement;
});

afterEach(() => {
  vi.useRealTimers();
});

describe('the focus', () => {
  it('goes to what waits, from there to what waits next, and back to where the person was', () => {
    elsewhere.focus();
    const { drawing, sent, element } = mount(waiting(ask('a'), ask('b')));
    expect(card(element, 'a').contains(document.activeElement)).toBe(true);
    vi.advanceTimersByTime(600);
    press('1');
    expect(sent).toMatchObject([{ kind: 'reply', id: 'a', answer: 'once' }]);
    // while the answer travels, the controls are switched off and the focus stays in the card
    expect(card(element, 'a').contains(document.activeElement)).toBe(true);
    drawing.patch({ kind: 'patch', items: [ask('a', { reply: 'once' })] });
    drawing.flush();
    expect(card(element, 'b').contains(document.activeElement)).toBe(true);
    press('1'); // too soon: nobody can have read it
    expect(sent).toHaveLength(1);
    vi.advanceTimersByTime(600);
    press('3');
    drawing.patch({ kind: 'patch', items: [ask('b', { reply: 'reject' })], state: 'running' });
    drawing.flush();
    expect(document.activeElement).toBe(elsewhere);
  });

  it('comes back to the control when the answer got lost', () => {
    const { element } = mount(waiting(ask('a')));
    vi.advanceTimersByTime(600);
    press('1');
    vi.advanceTimersByTime(7000);
    expect((document.activeElement as HTMLElement).textContent).toContain('Allow once');
    expect(card(element, 'a').textContent).toContain('not answered yet');
  });

  it.each(['a field', 'the notebook in command mode'])('is left alone while keys are pressed in %s', place => {
    const other = place === 'a field' ? elsewhere : document.body.appendChild(document.createElement('div'));
    other.tabIndex = 0;
    mount(null).drawing.dispose(); // the page knows nbagent
    other.focus();
    press('j');
    const seen = vi.fn();
    Element.prototype.scrollIntoView = seen;
    const { element } = mount(waiting(ask('a')));
    expect(document.activeElement).toBe(other);
    expect(seen).not.toHaveBeenCalled();
    for (let n = 0; n < 5; n++) {
      vi.advanceTimersByTime(400);
      press('k');
    }
    expect(document.activeElement).toBe(other);
    vi.advanceTimersByTime(1800);
    expect(card(element, 'a').contains(document.activeElement)).toBe(true);
  });

  it('decides nothing for whoever types on when it comes', () => {
    const { sent } = mount(waiting(ask('a')));
    for (let n = 0; n < 8; n++) {
      vi.advanceTimersByTime(300);
      press(n % 2 ? 'Enter' : '1');
    }
    expect(sent).toEqual([]);
    vi.advanceTimersByTime(600);
    press('1');
    expect(sent).toHaveLength(1);
  });

  it('leaves the drawing when the run ends: the record takes its place', () => {
    const { drawing, element } = mount(waiting(ask('a')));
    element.querySelector<HTMLElement>('.nba-scroll')!.focus();
    drawing.patch({ kind: 'patch', items: [ask('a', { reply: 'once' })], state: 'done' });
    expect(document.activeElement).toBe(cell);
  });

  it('goes to what waits when the application says so', () => {
    const { element } = mount(waiting(ask('a')));
    elsewhere.focus();
    press('x');
    element.dispatchEvent(new CustomEvent('nbagent:attend'));
    expect(card(element, 'a').contains(document.activeElement)).toBe(true);
  });
});

describe('an ask', () => {
  it('says once what it touches', () => {
    const code = { kind: 'code', text: 'x = 1\ny = 2', language: 'python' };
    const { element } = mount(
      waiting(ask('a'), ask('b', { patterns: [code.text], preview: code }), ask('c', { patterns: ['z'] }))
    );
    expect(card(element, 'a').querySelectorAll('.nba-patterns')).toHaveLength(0);
    expect(card(element, 'b').querySelectorAll('.nba-patterns')).toHaveLength(0);
    expect(card(element, 'c').querySelector('.nba-patterns')?.textContent).toBe('z');
  });
});

describe('a form', () => {
  it('is led through with Enter, and sent at its end', () => {
    const field = (question: string) => ({
      header: '',
      question,
      options: ['a', 'b'].map(label => ({ label, description: '' })),
      multiple: false,
      custom: true
    });
    const form = {
      id: 'q',
      kind: 'question',
      title: '',
      answers: null,
      questions: [field('one'), field('two')]
    } as Item;
    const { sent } = mount(waiting(form));
    vi.advanceTimersByTime(600);
    press('1');
    press('Enter');
    expect(sent).toEqual([]);
    press('2');
    press('Enter');
    expect(sent).toEqual([{ kind: 'answers', id: 'q', answers: [['a'], ['b']] }]);
  });
});

describe('the top line', () => {
  const clock = (element: HTMLElement): string => element.querySelector('.nba-clock')!.textContent!;

  it('counts on between what the kernel tells, and never back', () => {
    const value = normal({ state: 'running', head: { badge: 'BUILD', seconds: 3 } });
    const { drawing, element } = mount(value);
    vi.advanceTimersByTime(4000);
    expect(clock(element)).toBe('7 s');
    drawing.patch({ kind: 'patch', items: [{ id: 't', kind: 'text', text: 'more' }] });
    drawing.flush();
    expect(clock(element)).toBe('7 s');
    drawing.patch({ kind: 'patch', head: { seconds: 9 } });
    drawing.flush();
    expect(clock(element)).toBe('9 s');
  });

  it('shows how it ended and who began', () => {
    const change = { id: 'c', kind: 'agent', agent: 'build', previous: 'plan', badge: 'BUILD', writes: '' } as Item;
    const receipt = {
      files: [],
      notes: [],
      plan: '',
      tokens: {},
      seconds: 1,
      cost: null,
      reason: 'error',
      line: 'failed'
    };
    const { drawing, element } = mount({ ...normal({ head: { badge: 'BUILD' } }), items: [change], receipt });
    const head = element.querySelector<HTMLElement>('.nba-head')!;
    expect(head.dataset.end).toBe('bad');
    expect(head.querySelector('.nba-chip')?.textContent).toBe('PLAN →');
    drawing.update({ ...normal({ head: { badge: 'BUILD' } }), receipt: { ...receipt, reason: 'stop' } });
    drawing.flush();
    expect(head.dataset.end).toBe('good');
    drawing.update({ ...normal(null), receipt });
    drawing.flush();
    expect(head.hidden).toBe(true);
  });

  it('knows who may write little', () => {
    expect(['only writes p.md', 'writes nothing', 'nothing'].map(isBound)).toEqual([true, true, true]);
    expect(['writes what the rules allow', 'notes.md'].map(isBound)).toEqual([false, false]);
  });
});

describe('a run whose kernel is gone', () => {
  it('is closed where it stood', () => {
    const output = stranded(sample('asks')) as { data: Record<string, unknown> };
    const record = output.data['application/vnd.nbagent.record+json'] as Record_;
    const { element } = mount(record);
    const words = Array.from(element.querySelectorAll('.nba-mark-word'), word => word.textContent);
    expect(words).toContain('interrupted');
    expect(element.querySelectorAll('.nba-spinner, .nba-open, .nba-stop:not([hidden])')).toHaveLength(0);
    expect(element.querySelector('.nba-receipt')?.textContent).toContain('the kernel was stopped');
    expect(output.data['text/plain']).toContain('%agent sessions');
  });

  it('leaves a sentence where nothing is known of it', () => {
    const output = stranded(null) as { data: Record<string, unknown> };
    expect(Object.keys(output.data)).toEqual(['text/plain']);
  });

  it('is told from other widgets', () => {
    const data = { 'application/vnd.jupyter.widget-view+json': { model_id: 'm' } };
    expect(liveModel({ output_type: 'display_data', data, metadata: { nbagent: 'live' } })).toBe('m');
    expect(liveModel({ output_type: 'display_data', data, metadata: {} })).toBe(null);
    expect(liveModel({ output_type: 'stream', name: 'stdout', text: '' })).toBe(null);
  });
});
