/** The live view's module: what the widget loads. One file, styles included, no other import at run time. */

import css from '../style/draw.css';

import { Drawing } from './draw/drawing';
import { h, uid } from './draw/dom';
import type { KernelMessage, PageMessage } from './draw/record';

interface Model {
  get(name: 'record' | 'mount'): unknown;
  set(name: 'mount', value: number): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, callback: (content: never) => void): void;
  off(event: string, callback: (content: never) => void): void;
}

const ALIVE = 2000;

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  el.append(h('style', {}, css));
  const send = (message: PageMessage): void => {
    model.send(message);
    // where the application has a link of its own to the kernel, the answer takes both ways; the kernel counts it once
    el.dispatchEvent(
      new CustomEvent<PageMessage>('nbagent:message', { bubbles: true, composed: true, detail: message })
    );
  };
  const drawing = new Drawing(el, { send }, true);
  const view = uid();
  let seq = 0;
  const alive = (): void => {
    seq += 1;
    model.send({ kind: 'alive', seq, view });
  };
  let waited = false;
  /** Says at once that somebody sees what waits now, and then every two seconds. */
  const heed = (): void => {
    if (drawing.waiting && !waited) {
      alive();
    }
    waited = drawing.waiting;
  };
  const onRecord = (): void => {
    drawing.update(model.get('record'));
    heed();
  };
  const onMessage = (message: KernelMessage): void => {
    drawing.receive(message);
    heed();
  };
  model.on('change:record', onRecord);
  model.on('msg:custom', onMessage);
  onRecord();
  drawing.flush();
  // the element is put into the page after this
  requestAnimationFrame(() => drawing.attached());
  model.set('mount', (Number(model.get('mount')) || 0) + 1);
  model.save_changes();
  if (!waited) {
    alive();
  }
  const timer = setInterval(() => {
    if (drawing.waiting) {
      alive();
    }
  }, ALIVE);
  return () => {
    clearInterval(timer);
    model.off('change:record', onRecord);
    model.off('msg:custom', onMessage);
    if (!drawing.done) {
      model.send({ kind: 'gone', view }); // the output was cleared while the run goes on
    }
    drawing.dispose();
  };
}

export default { render };
