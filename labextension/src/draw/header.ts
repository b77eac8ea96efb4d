/** The top line: mode, phase, step, tokens, share of the context window, time, Stop. */

import { count, duration, h, icon, setText, show } from './dom';
import { isBound } from './lines';
import { isBad } from './receipt';
import type { Record_ } from './record';
import type { Context } from './view';

const PHASES: [string, string][] = [
  ['understand', 'Understand'],
  ['design', 'Design'],
  ['review', 'Review'],
  ['final', 'Final plan'],
  ['exit', 'Approval']
];

export class Header {
  readonly element: HTMLElement;
  private readonly before = h('span', { class: 'nba-chip', hidden: true });
  private readonly badge = h('span', { class: 'nba-badge' });
  private readonly writes = h('span', { class: 'nba-writes', dir: 'auto' });
  private readonly phases = h('ol', { class: 'nba-phases', 'aria-label': 'Phase' });
  private readonly waiting = h('button', { type: 'button', class: 'nba-waiting', hidden: true });
  private readonly step = h('span', { class: 'nba-fact nba-fact-step' });
  private readonly tokens = h('span', { class: 'nba-fact nba-fact-tokens' });
  private readonly fill = h('span', { class: 'nba-meter-fill' });
  private readonly meter = h(
    'span',
    {
      class: 'nba-meter',
      role: 'meter',
      'aria-label': 'Context window used',
      'aria-valuemin': 0,
      'aria-valuemax': 100
    },
    this.fill
  );
  private readonly clock = h('span', { class: 'nba-fact nba-clock', role: 'timer', 'aria-label': 'Time' });
  private readonly stop: HTMLButtonElement;
  private readonly light = h('span', { class: 'nba-light', 'aria-hidden': true });
  private timer: ReturnType<typeof setInterval> | null = null;
  private since = 0;
  private seconds = -1;
  private record: Record_ | null = null;
  private phaseDrawn: string | null = null;

  constructor(
    private readonly context: Context,
    goTo: () => void
  ) {
    this.stop = h(
      'button',
      { type: 'button', class: 'nba-button nba-stop', onclick: () => this.press() },
      icon('stop'),
      h('span', {}, 'Stop')
    );
    this.waiting.addEventListener('click', goTo);
    this.element = h(
      'div',
      { class: 'nba-head' },
      h('div', { class: 'nba-head-left' }, this.light, this.before, this.badge, this.writes, this.phases, this.waiting),
      h('div', { class: 'nba-head-right' }, this.step, this.tokens, this.meter, this.clock, this.stop)
    );
  }

  update(record: Record_): void {
    const { head, state } = record;
    if (this.seconds !== head.seconds) {
      // the kernel tells the time now and then; in between the page counts on
      this.seconds = head.seconds;
      this.since = performance.now();
    }
    this.record = record;
    this.element.dataset.state = state;
    const reason = record.receipt?.reason ?? '';
    this.element.dataset.end = state !== 'done' ? '' : isBad(reason) ? 'bad' : 'good';
    // what failed before it began has its line and nothing to say here
    show(this.element, state !== 'done' || head.badge !== '' || head.agent !== '');
    this.drawBefore(record);
    setText(this.badge, head.badge || head.agent.toUpperCase());
    this.badge.dataset.bound = isBound(head.writes) ? 'yes' : 'no';
    this.badge.title = [head.model, head.root].filter(Boolean).join(' · ');
    setText(this.writes, head.writes);
    this.writes.title = head.writes;
    this.drawPhase(state === 'running' ? head.phase : '');
    const waits = state === 'waiting' && head.waiting !== '';
    setText(this.waiting, waits ? `Waits for ${head.waiting}` : '');
    this.waiting.title = this.waiting.textContent ?? '';
    show(this.waiting, waits);
    setText(this.step, head.step ? `step ${head.step}` : '');
    setText(this.tokens, head.tokens ? `${count(head.tokens)} tokens` : '');
    this.drawMeter(head.context, head.window);
    const on = state !== 'done';
    show(this.stop, on && this.context.live());
    if (on && this.timer === null) {
      this.timer = setInterval(() => this.tick(), 1000);
    } else if (!on) {
      this.dispose();
    }
    this.tick();
  }

  dispose(): void {
    if (this.timer !== null) {
      clearInterval(this.timer);
      this.timer = null;
    }
  }

  private press(): void {
    this.stop.disabled = true;
    this.stop.classList.add('nba-pressed');
    setText(this.stop.lastChild as Node, 'Stopping…');
    this.context.host.send({ kind: 'stop' });
    setTimeout(() => {
      this.stop.disabled = false;
      this.stop.classList.remove('nba-pressed');
      setText(this.stop.lastChild as Node, 'Stop');
    }, 4000);
  }

  private tick(): void {
    if (!this.record) {
      return;
    }
    const { head, state } = this.record;
    const more = state === 'done' ? 0 : (performance.now() - this.since) / 1000;
    setText(this.clock, duration(head.seconds + more));
  }

  /** A run that changed hands: who began it. */
  private drawBefore(record: Record_): void {
    const change = record.items.find(item => item.kind === 'agent' && !item.parent && item.previous);
    const first = change?.kind === 'agent' ? change.previous : '';
    show(this.before, first !== '');
    setText(this.before, first ? `${first.toUpperCase()} →` : '');
  }

  private drawPhase(phase: string): void {
    if (phase === this.phaseDrawn) {
      return;
    }
    this.phaseDrawn = phase;
    const at = PHASES.findIndex(([name]) => name === phase);
    show(this.phases, at >= 0);
    this.phases.replaceChildren(
      ...PHASES.map(([, label], i) =>
        h(
          'li',
          { 'data-at': i < at ? 'before' : i === at ? 'now' : 'after', 'aria-current': i === at ? 'step' : null },
          label
        )
      )
    );
  }

  private drawMeter(used: number, window: number): void {
    show(this.meter, window > 0 && used > 0);
    if (window > 0) {
      const share = Math.min(100, Math.round((used / window) * 100));
      this.fill.style.width = `${share}%`;
      this.meter.dataset.level = share >= 80 ? 'high' : share >= 60 ? 'middle' : 'low';
      this.meter.setAttribute('aria-valuenow', String(share));
      this.meter.title = `${count(used)} of ${count(window)} tokens of context (${share} %)`;
    }
  }
}
