/** A plan that waits for a person: rendered, editable, with the changes since the version before. */

import { Card } from './card';
import { drawDiff } from './diff';
import { h, icon, setText, show, uid } from './dom';
import { markdown } from './markdown';
import { isOpen, type ReviewItem } from './record';
import type { Context, ItemView } from './view';

type Action = 'build' | 'later' | 'revise' | 'reject';

const DECIDED: Record<string, string> = {
  approved: 'Approved',
  revised: 'Sent back, planning goes on',
  rejected: 'Rejected',
  expired: 'Expired: nobody decided'
};

/** Edits outlive a reload of the page. */
const drafts = {
  key: (item: ReviewItem) => `nbagent:draft:${item.id}:${item.hash}`,
  get(item: ReviewItem): string | null {
    try {
      return sessionStorage.getItem(drafts.key(item));
    } catch {
      return null;
    }
  },
  set(item: ReviewItem, text: string | null): void {
    try {
      if (text === null) {
        sessionStorage.removeItem(drafts.key(item));
      } else {
        sessionStorage.setItem(drafts.key(item), text);
      }
    } catch {
      // a page without storage keeps the draft in the editor only
    }
  }
};

export class ReviewView implements ItemView<ReviewItem> {
  readonly element: HTMLElement;
  private readonly card: Card;
  private readonly notes = h('div');
  private readonly tabs = h('div', { class: 'nba-tabs', role: 'tablist', 'aria-label': 'The plan' });
  private readonly pane = h('div', { class: 'nba-pane', role: 'tabpanel', tabindex: 0 });
  private readonly editedMark = h('span', { class: 'nba-chip nba-chip-warn', hidden: true }, 'edited by you');
  private readonly editor: HTMLTextAreaElement;
  private readonly comment: HTMLTextAreaElement;
  private readonly buttons = new Map<Action, HTMLButtonElement>();
  private tab: 'plan' | 'edit' | 'changes' = 'plan';
  private kept: string | null = null;
  private drawn = '';
  private shownHash = '';

  constructor(
    private item: ReviewItem,
    private readonly context: Context
  ) {
    const title = uid();
    this.card = new Card(context, 'nba-ask nba-review', title, h('div', { class: 'nba-outcome', dir: 'auto' }), {
      '1': () => this.decide('build'),
      '2': () => this.decide('later'),
      '3': () => this.decide('revise'),
      '4': () => this.decide('reject'),
      Escape: () => this.comment.focus(),
      'Escape typing': () => this.element.focus({ preventScroll: true })
    });
    this.element = this.card.element;
    this.editor = h('textarea', {
      class: 'nba-editor',
      'aria-label': 'The plan, as Markdown',
      spellcheck: 'false',
      dir: 'auto',
      oninput: () => this.onEdit()
    });
    this.comment = h('textarea', {
      class: 'nba-input nba-comment',
      rows: 2,
      placeholder: 'A comment: what to change, or what to mind (optional)',
      'aria-label': 'Comment that goes with the decision',
      dir: 'auto'
    });
    this.card.controls.append(
      this.comment,
      h(
        'div',
        { class: 'nba-buttons' },
        this.button('build', 'Approve and build', '1', 'nba-primary'),
        this.button('later', 'Approve, build later', '2', ''),
        this.button('revise', 'Keep planning', '3', ''),
        this.button('reject', 'Reject', '4', 'nba-danger')
      ),
      this.card.answering.status
    );
    const path = h('code', { class: 'nba-path', dir: 'ltr' }, item.path);
    this.element.append(
      h(
        'div',
        { class: 'nba-card-head' },
        icon('plan'),
        h('strong', { id: title }, 'The plan'),
        context.host.openFile
          ? h(
              'button',
              { type: 'button', class: 'nba-link', onclick: () => context.host.openFile?.(this.item.path) },
              path
            )
          : path,
        this.editedMark
      ),
      this.notes,
      this.tabs,
      this.pane,
      this.card.controls,
      this.card.outcome
    );
    this.element.addEventListener('keydown', event => {
      if (event.key === 'Enter' && event.target === this.element && !event.defaultPrevented) {
        event.preventDefault();
        this.buttons.get('build')?.focus();
      }
    });
    this.update(item);
  }

  update(item: ReviewItem): void {
    const before = this.item;
    this.item = item;
    const open = this.isOpen();
    const key = [item.hash, item.status, item.stale, item.edited, item.comment, item.cut, open].join('|');
    if (key === this.drawn && before.text === item.text) {
      return;
    }
    this.drawn = key;
    if (item.hash !== this.shownHash) {
      this.newText(before);
    }
    this.element.dataset.status = open ? 'awaiting' : item.status === 'awaiting' ? 'expired' : item.status;
    this.drawNotes();
    this.card.draw(open);
    if (!open) {
      this.close();
    }
    this.drawTabs();
    this.drawPane();
  }

  focus(wanted?: boolean): void {
    this.card.keys.take(() => this.element, wanted);
  }

  ack(): void {
    this.card.answering.ack();
    this.comment.value = '';
    drafts.set(this.item, null);
  }

  refuse(error: string): void {
    this.card.answering.refuse(error);
  }

  dispose(): void {
    this.card.dispose();
  }

  private isOpen(): boolean {
    return isOpen(this.item) && !this.context.over() && this.context.live();
  }

  private get dirty(): boolean {
    return this.editor.value !== this.item.text;
  }

  /** Another version is on the screen: an answer to the one before is void, typed edits are put aside. */
  private newText(before: ReviewItem): void {
    if (this.shownHash) {
      this.kept = this.editor.value !== before.text ? this.editor.value : null;
      this.card.answering.reset();
      this.context.announce('The plan has changed. Please look at it again.');
    }
    this.shownHash = this.item.hash;
    this.editor.value = drafts.get(this.item) ?? this.item.text;
    show(this.editedMark, this.dirty);
  }

  private onEdit(): void {
    drafts.set(this.item, this.dirty ? this.editor.value : null);
    show(this.editedMark, this.dirty);
  }

  private button(action: Action, label: string, key: string, kind: string): HTMLButtonElement {
    const button = h(
      'button',
      {
        type: 'button',
        class: `nba-button ${kind}`,
        'data-action': action,
        'aria-keyshortcuts': key,
        onclick: () => this.decide(action)
      },
      label,
      h('kbd', { 'aria-hidden': true }, key)
    );
    this.buttons.set(action, button);
    return button;
  }

  private decide(action: Action): void {
    if (!this.isOpen()) {
      return;
    }
    this.card.answering.send(
      {
        kind: 'verdict',
        id: this.item.id,
        hash: this.item.hash,
        action,
        text: this.editor.value,
        comment: this.comment.value.trim()
      },
      this.buttons.get(action) ?? null
    );
  }

  private close(): void {
    this.kept = null;
    if (this.tab === 'edit') {
      this.tab = 'plan';
    }
    this.comment.value = '';
    this.editor.value = this.item.text;
    show(this.editedMark, false);
    const { status, action, comment, edited, by } = this.item;
    const words = [DECIDED[status === 'awaiting' ? 'expired' : status] ?? status];
    if (status === 'approved') {
      words.push(action === 'later' ? ', to be built later' : action === 'build' ? ', built in this cell' : '');
      words.push(edited ? ', as you edited it' : '');
    }
    if (by && by !== 'person') {
      words.push(by === 'cassette' ? ' by the cassette' : ` (by ${by})`);
    }
    setText(this.card.outcome, words.join('') + (comment ? `: “${comment}”` : ''));
  }

  private drawNotes(): void {
    this.notes.replaceChildren();
    if (!this.isOpen()) {
      return;
    }
    if (this.item.stale) {
      this.note('The file changed while it was under review. This is the new text; please decide again.');
    }
    for (const warning of this.item.warnings) {
      this.note(warning);
    }
    if (this.kept !== null) {
      const text = this.kept;
      const row = this.note('Your edits were made on the version before. ');
      row.append(
        h(
          'button',
          {
            type: 'button',
            class: 'nba-link',
            onclick: () => {
              this.editor.value = text;
              this.kept = null;
              this.onEdit();
              this.drawNotes();
              this.choose('edit');
            }
          },
          'Take them back'
        )
      );
    }
  }

  private note(text: string): HTMLElement {
    const row = h('div', { class: 'nba-warn', dir: 'auto' }, icon('warn'), h('span', {}, text));
    this.notes.append(row);
    return row;
  }

  private drawTabs(): void {
    const names: [typeof this.tab, string][] = [['plan', 'Plan']];
    if (this.isOpen()) {
      names.push(['edit', 'Edit']);
    }
    if (this.item.diff) {
      names.push(['changes', 'Changes since the last version']);
    }
    if (!names.some(([name]) => name === this.tab)) {
      this.tab = 'plan';
    }
    this.tabs.replaceChildren(
      ...names.map(([name, label]) =>
        h(
          'button',
          {
            type: 'button',
            role: 'tab',
            class: 'nba-tab',
            'data-tab': name,
            'aria-selected': String(name === this.tab),
            tabindex: name === this.tab ? 0 : -1,
            onclick: () => this.choose(name),
            onkeydown: (event: KeyboardEvent) =>
              this.onTabKey(
                event,
                names.map(pair => pair[0])
              )
          },
          label
        )
      )
    );
    show(this.tabs, names.length > 1);
  }

  private onTabKey(event: KeyboardEvent, names: (typeof this.tab)[]): void {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step) {
      event.preventDefault();
      const at = names.indexOf(this.tab);
      this.choose(names[(at + step + names.length) % names.length], true);
    }
  }

  private choose(tab: typeof this.tab, stay = false): void {
    this.tab = tab;
    this.drawTabs();
    this.drawPane();
    if (stay) {
      this.tabs.querySelector<HTMLElement>('[aria-selected="true"]')?.focus();
    } else if (tab === 'edit') {
      this.editor.focus();
    }
  }

  private drawPane(): void {
    this.pane.setAttribute('aria-label', this.tab === 'edit' ? 'Editor' : 'The plan, rendered');
    if (this.tab === 'edit') {
      this.pane.replaceChildren(this.editor);
      this.editor.style.height = `${Math.min(420, 40 + this.editor.value.split('\n').length * 18)}px`;
    } else if (this.tab === 'changes') {
      this.pane.replaceChildren(drawDiff(this.item.diff, this.item.path, 'Changes since the last version'));
    } else {
      const text = h('div', { class: 'nba-md', dir: 'auto' });
      text.append(markdown(this.isOpen() ? this.editor.value : this.item.text));
      this.pane.replaceChildren(text);
    }
  }
}
