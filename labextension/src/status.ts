/** Mode and tokens of the notebook's run, in the status bar. */

import type { ITranslator } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { count, h, setText } from './draw/dom';
import { isBound } from './draw/lines';
import { isBad } from './draw/receipt';
import type { Record_ } from './draw/record';

export class StatusItem extends Widget {
  private readonly badge = h('span', { class: 'nba-status-badge' });
  private readonly text = h('span');
  private readonly activeChanged = new Signal<this, void>(this);
  private shown = false;

  constructor(
    translator: ITranslator,
    private readonly open: () => void
  ) {
    super();
    this.trans = translator.load('nbagent');
    this.addClass('nba-StatusItem');
    this.node.append(
      h('button', { type: 'button', class: 'nba-status-button', onclick: () => this.open() }, this.badge, this.text)
    );
  }

  private readonly trans;

  get active(): boolean {
    return this.shown;
  }

  get activeStateChanged(): ISignal<this, void> {
    return this.activeChanged;
  }

  update_(record: Record_ | null): void {
    const shown = record !== null;
    if (record) {
      const { head, state } = record;
      setText(this.badge, head.badge || head.agent.toUpperCase());
      this.badge.dataset.bound = isBound(head.writes) ? 'yes' : 'no';
      const words = {
        running: this.trans.__('running'),
        waiting: head.waiting ? this.trans.__('waits for %1', head.waiting) : this.trans.__('waiting'),
        done: this.ended(record.receipt?.reason ?? '')
      };
      const tokens = head.tokens ? ` · ${this.trans.__('%1 tokens', count(head.tokens))}` : '';
      setText(this.text, `${words[state]}${tokens}`);
      this.node.title = `nbagent: ${head.title || head.model}`;
    }
    if (shown !== this.shown) {
      this.shown = shown;
      this.activeChanged.emit();
    }
  }

  /** What failed or was stopped is not done. */
  private ended(reason: string): string {
    if (reason === 'error') {
      return this.trans.__('failed');
    }
    return isBad(reason) ? this.trans.__('stopped') : this.trans.__('done');
  }
}
