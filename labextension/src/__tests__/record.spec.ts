import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { beforeEach, describe, expect, it, vi } from 'vitest';

import { colour } from '../draw/colour';
import { parseDiff } from '../draw/diff';
import { Drawing } from '../draw/drawing';
import { markdown, Stream } from '../draw/markdown';
import { fold, normal, type Item, type PageMessage, type Record_ } from '../draw/record';
import { groupTitle } from '../draw/transcript';

const sample = (name: string): Record_ =>
  JSON.parse(readFileSync(join(process.cwd(), '../tests/data/records', `${name}.json`), 'utf8'));

function mount(value: unknown, live = true) {
  const sent: PageMessage[] = [];
  const drawing = new Drawing(document.body, { send: message => sent.push(message) }, live);
  drawing.update(value);
  drawing.flush();
  return { drawing, sent, element: drawing.element };
}

const button = (element: HTMLElement, label: string): HTMLButtonElement => {
  const found = Array.from(element.querySelectorAll('button')).find(b => b.textContent?.startsWith(label));
  if (!found) {
    throw new Error(`no button ${label}`);
  }
  return found;
};

const text = (id: string, value: string): Item => ({ id, kind: 'text', text: value });

const tool = (id: string, more: object = {}): Item =>
  ({
    id,
    kind: 'tool',
    name: 'read',
    title: `${id}.py`,
    state: 'completed',
    input: {},
    output: '',
    error: '',
    rule: null,
    metadata: {},
    seconds: 0.1,
    size: 0,
    effect: 'reads',
    refused: false,
    images: [],
    ...more
  }) as Item;

const record = (items: Item[], more: object = {}): Record_ => ({ ...normal({ state: 'running' }), items, ...more });

beforeEach(() => {
  document.body.replaceChildren();
});

describe('fold', () => {
  it('adds, changes and appends by id', () => {
    const value = record([text('a', 'x')]);
    const index = new Map([['a', 0]]);
    const touched = fold(value, index, {
      kind: 'patch',
      head: { step: 3 },
      items: [text('b', 'new')],
      append: { a: { field: 'text', text: 'yz' }, nowhere: { field: 'text', text: '?' } },
      state: 'waiting'
    });
    expect(value.items).toEqual([text('a', 'xyz'), text('b', 'new')]);
    expect(value.head.step).toBe(3);
    expect(touched).toEqual({ head: true, state: true, receipt: false, items: ['b', 'a'] });
  });

  it('makes a record of anything', () => {
    for (const odd of [
      null,
      undefined,
      3,
      'x',
      [],
      { items: [null, 4, {}, { id: 'a' }] },
      { head: 7, receipt: 'no' }
    ]) {
      const value = normal(odd);
      expect(value.items).toEqual([]);
      expect(value.receipt).toBeNull();
      expect(value.state).toBe('done');
    }
  });
});

describe('Markdown', () => {
  const html = (source: string): string => {
    const host = document.createElement('div');
    host.append(markdown(source));
    return host.innerHTML;
  };

  it.each([
    '<img src=x onerror=alert(1)><script>1</script>',
    '[a](javascript:alert(1))',
    '[a](data:text/html,x)',
    '![a](https://example.org/a.png)',
    '<svg onload=alert(1)>',
    '[a](vbscript:x "t")',
    '<a href="javascript:1">x</a>',
    '| a |\n|---|\n| <iframe src=x> |'
  ])('makes nothing that acts out of %s', source => {
    const host = document.createElement('div');
    host.append(markdown(source));
    expect(host.querySelectorAll('img, script, svg, iframe')).toHaveLength(0);
    for (const link of Array.from(host.querySelectorAll('a'))) {
      expect(link.getAttribute('href')).toMatch(/^(https?:|mailto:)/);
      expect(link.rel).toContain('noopener');
    }
    for (const element of Array.from(host.querySelectorAll('*'))) {
      expect(element.getAttributeNames().filter(name => name.startsWith('on'))).toEqual([]);
    }
  });

  it('draws what Markdown has', () => {
    expect(html('# A\n\n1. *b* **c** `d`')).toBe(
      '<h1 dir="auto">A</h1><ol><li dir="auto"><em>b</em> <strong>c</strong> <code>d</code></li></ol>'
    );
  });

  it('is the same in pieces of any size', () => {
    const source = sample('review').items.at(-1) as { text: string };
    const extra = '\n\n- a\n- b\n\n  c\n\n> q\n> r\n\n```\nopen\n```\n\n[x]: https://example.org\n\nlast [x]\n';
    const whole = source.text + extra;
    const expected = html(whole).replace(/\n/g, '');
    for (const size of [1, 3, 7, 50, 1000]) {
      const stream = new Stream('s');
      for (let at = 0; at < whole.length + size; at += size) {
        stream.update(whole.slice(0, at));
      }
      stream.update(whole);
      expect(stream.element.innerHTML.replace(/\n/g, ''), `size ${size}`).toBe(expected);
    }
  });

  it('takes back what was settled', () => {
    const stream = new Stream('s');
    stream.update('one\n\ntwo\n\nthree');
    stream.update('uno');
    expect(stream.element.textContent?.trim()).toBe('uno');
  });
});

describe('colours', () => {
  it.each(['python', 'bash', 'json', 'typescript', 'markdown', 'xml', 'ini', 'sql', 'yaml', 'r', 'css', 'diff'])(
    'never lose text (%s)',
    language => {
      const source =
        'def f(a: int = 3) -> "x":\n    """doc"""\n    return f"{a!r}" # <b>\n{"a": [1, true]}\n<p a="b">c</p>\n$x `y` \'z';
      const host = document.createElement('div');
      host.append(colour(source, language));
      expect(host.textContent).toBe(source);
    }
  );

  it('does colour', () => {
    const host = document.createElement('div');
    host.append(colour('def f(): pass', 'python'));
    expect(host.querySelector('.hljs-keyword')?.textContent).toBe('def');
  });
});

describe('diffs', () => {
  it('counts lines and keeps removed lines that look like headers', () => {
    const rows = parseDiff('--- a/x.sql\n+++ b/x.sql\n@@ -1,3 +1,3 @@ f\n a\n--- comment\n+++ other\n b\n');
    expect(rows.map(row => [row.kind, row.old, row.now, row.text])).toEqual([
      ['file', null, null, 'x.sql'],
      ['hunk', null, null, 'f'],
      ['same', 1, 1, 'a'],
      ['del', 2, null, '-- comment'],
      ['add', null, 2, '++ other'],
      ['same', 3, 3, 'b']
    ]);
  });

  it('says nothing of the end of a cell', () => {
    const diff = (file: string): string =>
      `--- a/${file}\n+++ b/${file}\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n`;
    expect(parseDiff(diff('a.py')).map(row => row.kind)).toEqual(['file', 'hunk', 'add', 'note']);
    expect(parseDiff(diff('a.ipynb cell c1')).map(row => row.kind)).toEqual(['file', 'hunk', 'add']);
  });

  it('shows text that is no diff', () => {
    expect(parseDiff('no diff at all\n')).toEqual([{ kind: 'note', old: null, now: null, text: 'no diff at all' }]);
  });
});

describe('the drawing', () => {
  it('groups reads that stand together, and shows failures by themselves', () => {
    const items = [
      tool('a'),
      tool('b'),
      tool('c', { name: 'grep' }),
      tool('d', { state: 'error', error: 'no' }),
      tool('e')
    ];
    const { element } = mount(record(items));
    const groups = element.querySelectorAll('.nba-group');
    expect(groups).toHaveLength(1);
    expect(groups[0].querySelector('.nba-group-title')?.textContent).toBe('Read 2 files, searched once');
    expect(element.querySelectorAll('.nba-items > .nba-tool-frame').length).toBe(5);
  });

  it('takes a call out of its group when it is refused', () => {
    const { drawing, element } = mount(record([tool('a'), tool('b', { state: 'running' }), tool('c')]));
    expect(element.querySelectorAll('.nba-group')).toHaveLength(1);
    drawing.patch({
      kind: 'patch',
      items: [
        tool('b', { state: 'error', refused: true, rule: { permission: 'read', pattern: '*.env', action: 'deny' } })
      ]
    });
    drawing.flush();
    expect(element.querySelectorAll('.nba-group')).toHaveLength(0);
    expect(element.querySelector('[data-state=refused]')?.textContent).toContain('read *.env: deny');
  });

  it('says of a call that a person refused that it was refused, not that it failed', () => {
    const rejected = tool('a', { name: 'plan_exit', state: 'error', error: 'no', metadata: { refused: true } });
    const { element } = mount(record([rejected]));
    const frame = element.querySelector<HTMLElement>('[data-state=refused]');
    expect(frame?.querySelector('.nba-mark')?.textContent).toBe('refused');
    expect(frame?.querySelector<HTMLElement>('.nba-refusal')?.hidden).toBe(true);
  });

  it('names groups', () => {
    expect(groupTitle([tool('a'), tool('b', { name: 'inspect' })] as never)).toBe(
      'Read 1 file, looked at 1 more thing'
    );
  });

  it('nests a subagent under its call', () => {
    const { element } = mount(
      record([
        tool('t', { name: 'task', effect: 'asks', state: 'running' }),
        tool('x', { parent: 't' }),
        tool('y', { parent: 't' })
      ])
    );
    expect(element.querySelector('[data-id=t] .nba-nested .nba-group')).not.toBeNull();
    expect(element.querySelector<HTMLDetailsElement>('[data-id=t] details')?.open).toBe(true);
  });

  it('does not redraw what did not change', () => {
    const { drawing, element } = mount(record([text('a', 'one'), tool('b'), text('c', 'two')]));
    const before = Array.from(element.querySelectorAll('[data-id]'));
    const seen = new Set<Node>();
    const observer = new MutationObserver(list => list.forEach(m => seen.add(m.target)));
    observer.observe(element.querySelector('.nba-items') as Node, {
      subtree: true,
      childList: true,
      characterData: true
    });
    drawing.patch({ kind: 'patch', append: { c: { field: 'text', text: ' three' } } });
    drawing.flush();
    observer.takeRecords().forEach(m => seen.add(m.target));
    expect(Array.from(element.querySelectorAll('[data-id]'))).toEqual(before);
    expect(before[0].contains([...seen][0])).toBe(false);
    expect([...seen].every(node => before[2].contains(node))).toBe(true);
    observer.disconnect();
  });

  it('draws a thousand calls in little time and an update in less', () => {
    const items = Array.from({ length: 1000 }, (_, i) => tool(`i${i}`, { effect: i % 2 ? 'command' : 'reads' }));
    const { drawing } = mount(record(items));
    const start = performance.now();
    for (let i = 0; i < 20; i++) {
      drawing.patch({ kind: 'patch', items: [tool(`i${i * 7}`, { effect: 'command', seconds: i })] });
      drawing.flush();
    }
    expect((performance.now() - start) / 20).toBeLessThan(100);
  });

  it('draws every sample', () => {
    for (const name of ['review', 'asks', 'done']) {
      const { drawing, element } = mount(sample(name), name !== 'done');
      expect(element.textContent).not.toBe('');
      drawing.dispose();
    }
    expect(document.body.children).toHaveLength(0);
  });

  it('asks for what was cut when a card is opened, once', () => {
    const { drawing, sent, element } = mount(record([tool('a', { effect: 'command', output: 'short', cut: true })]));
    const details = element.querySelector('[data-id=a] details') as HTMLDetailsElement;
    details.open = true;
    details.dispatchEvent(new Event('toggle'));
    details.dispatchEvent(new Event('toggle'));
    expect(sent).toEqual([{ kind: 'fetch', id: 'a' }]);
    drawing.receive({ kind: 'full', item: tool('a', { effect: 'command', output: 'the whole output' }) });
    drawing.flush();
    expect(element.textContent).toContain('the whole output');
    expect(element.textContent).not.toContain('Loading');
  });

  it('appends the output of a running command', () => {
    const { drawing, element } = mount(record([tool('a', { effect: 'command', state: 'running', output: 'one\n' })]));
    const details = element.querySelector('[data-id=a] details') as HTMLDetailsElement;
    details.open = true;
    details.dispatchEvent(new Event('toggle'));
    const output = element.querySelector('.nba-output');
    drawing.patch({ kind: 'patch', append: { a: { field: 'output', text: '\u001b[31mtwo\u001b[0m' } } });
    drawing.flush();
    expect(element.querySelector('.nba-output')).toBe(output);
    expect(output?.textContent).toBe('one\ntwo');
  });
});

describe('answers', () => {
  it('a press is sent once, seen at once, and locked by the ack', () => {
    const { drawing, sent, element } = mount(sample('asks'));
    const reject = button(element, 'Reject');
    const feedback = element.querySelector('.nba-ask input[type=text]') as HTMLInputElement;
    feedback.value = ' no ';
    reject.click();
    reject.click();
    button(element, 'Allow once').click();
    expect(sent).toEqual([{ kind: 'reply', id: 'k1', answer: 'reject', feedback: 'no', remember: null, save: false }]);
    expect(element.querySelector('.nba-status')?.textContent).toBe('Sending…');
    expect(reject.disabled).toBe(true);
    drawing.receive({ kind: 'ack', id: 'k1' });
    expect(element.querySelector('.nba-status')?.textContent).toBe('Taken.');
    expect(feedback.value).toBe('');
  });

  it('a press that nobody takes opens again, and an error is shown', () => {
    vi.useFakeTimers();
    try {
      const { drawing, sent, element } = mount(sample('asks'));
      button(element, 'Allow once').click();
      vi.advanceTimersByTime(1100);
      expect(element.querySelector('.nba-status')?.textContent).toMatch(/^Sent/);
      vi.advanceTimersByTime(6000);
      expect(button(element, 'Allow once').disabled).toBe(false);
      button(element, 'Allow once').click();
      expect(sent).toHaveLength(2);
      drawing.receive({ kind: 'refused', id: 'k1', error: 'the store is full' });
      expect(element.querySelector('.nba-status')?.textContent).toBe('the store is full');
      expect(button(element, 'Allow once').disabled).toBe(false);
    } finally {
      vi.useRealTimers();
    }
  });

  it('an answer that went two ways is taken once and never shown as refused', () => {
    const { drawing, element } = mount(sample('asks'));
    button(element, 'Allow once').click();
    element.dispatchEvent(new CustomEvent('nbagent:kernel', { detail: { kind: 'ack', id: 'k1' } }));
    drawing.receive({ kind: 'refused', id: 'k1', error: 'expired: this was already decided' });
    expect(element.querySelector('.nba-status')?.textContent).toBe('Taken.');
    expect(button(element, 'Allow once').disabled).toBe(true);
  });

  it('a long preview comes whole when it is asked for', () => {
    const value = sample('asks');
    const ask = value.items.find(item => item.id === 'k1') as Extract<Item, { kind: 'ask' }>;
    ask.cut = true;
    const { drawing, sent, element } = mount(value);
    button(element, 'Show the whole').click();
    expect(sent).toEqual([{ kind: 'fetch', id: 'k1' }]);
    const preview = { kind: 'text', text: 'all of it' };
    drawing.receive({ kind: 'full', item: { ...ask, preview } });
    drawing.flush();
    expect(element.querySelector('[data-id=k1] .nba-preview')?.textContent).toBe('all of it');
    expect(button(element, 'Allow once').disabled).toBe(false);
  });

  it('always remembers what the person left in the fields', () => {
    const { sent, element } = mount(sample('asks'));
    button(element, 'Always…').click();
    const [pattern] = Array.from(element.querySelectorAll<HTMLInputElement>('.nba-always-row input[type=text]'));
    expect(pattern.value).toBe('tests/test_report.py');
    button(element, 'wider').click();
    expect(pattern.value).toBe('tests/**');
    button(element, 'Always allow this').click();
    expect(sent).toEqual([
      { kind: 'reply', id: 'k1', answer: 'always', feedback: '', remember: [['edit', 'tests/**']], save: false }
    ]);
  });

  it('a decided or expired card has nothing to press', () => {
    const value = sample('asks');
    const { drawing, element, sent } = mount(value);
    const stale = button(element, 'Allow once');
    drawing.patch({ kind: 'patch', state: 'done' });
    drawing.flush();
    expect(element.querySelector('[data-id=k1] button')).toBeNull();
    expect(element.querySelector('[data-id=k1]')?.textContent).toContain('Expired');
    stale.disabled = false;
    stale.click();
    expect(sent).toEqual([]);
  });

  it('a record without a kernel cannot be answered', () => {
    const { element } = mount(sample('review'), false);
    expect(element.querySelector('[data-id=rv1] .nba-button')).toBeNull();
  });

  it('the verdict bears the hash on the screen and the text as it was left', () => {
    const { drawing, sent, element } = mount(sample('review'));
    const review = sample('review').items.at(-1) as Extract<Item, { kind: 'review' }>;
    (element.querySelector('[data-tab=edit]') as HTMLElement).click();
    const editor = element.querySelector('.nba-editor') as HTMLTextAreaElement;
    editor.value = 'mine';
    editor.dispatchEvent(new Event('input'));
    // the file changes under the review: what was typed is kept aside, and the new text is what is decided
    drawing.patch({ kind: 'patch', items: [{ ...review, text: 'theirs', hash: 'h2', stale: true }] });
    drawing.flush();
    expect(editor.value).toBe('theirs');
    button(element, 'Take them back').click();
    expect(editor.value).toBe('mine');
    button(element, 'Keep planning').click();
    expect(sent).toEqual([{ kind: 'verdict', id: 'rv1', hash: 'h2', action: 'revise', text: 'mine', comment: '' }]);
  });

  it('Enter in the editor, in the comment and on the card approves nothing', () => {
    const { sent, element } = mount(sample('review'));
    (element.querySelector('[data-tab=edit]') as HTMLElement).click();
    for (const selector of ['.nba-editor', '.nba-comment', '.nba-review']) {
      for (const modifiers of [{}, { ctrlKey: true }, { shiftKey: true }, { metaKey: true }]) {
        element
          .querySelector(selector)
          ?.dispatchEvent(
            new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true, ...modifiers })
          );
      }
    }
    expect(sent).toEqual([]);
  });

  it('questions are answered together', () => {
    const { sent, element } = mount(sample('asks'));
    const form = element.querySelector('[data-id=q1]') as HTMLElement;
    expect(button(form, 'Answer').disabled).toBe(true);
    (form.querySelector('input[value=UTC]') as HTMLInputElement).click();
    (form.querySelector('input[value="Last year"]') as HTMLInputElement).click();
    (form.querySelector('input[value="This year"]') as HTMLInputElement).click();
    button(form, 'Answer').click();
    expect(sent).toEqual([{ kind: 'answers', id: 'q1', answers: [['UTC'], ['This year', 'Last year']] }]);
  });

  it('keys inside never reach the application', () => {
    const { element } = mount(sample('review'));
    const heard = vi.fn();
    document.addEventListener('keydown', heard);
    element.querySelector('.nba-comment')?.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', bubbles: true }));
    document.removeEventListener('keydown', heard);
    expect(heard).not.toHaveBeenCalled();
    expect(element.closest('[data-lm-suppress-shortcuts]')).not.toBeNull();
  });
});
