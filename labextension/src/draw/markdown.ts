/**
 * Markdown as DOM, without ever parsing markup: markdown-it's tokens become elements of a fixed set.
 * Raw HTML shows as text, images become links, links go to http(s) and mail only.
 */

import MarkdownIt from 'markdown-it';
import type Token from 'markdown-it/lib/token.mjs';

import { colour } from './colour';
import { h } from './dom';

const parser = new MarkdownIt({ html: false, linkify: false, typographer: false });

const TAGS = new Set('p h1 h2 h3 h4 h5 h6 ul ol li blockquote em strong s table thead tbody tr th td'.split(' '));

function safeHref(href: string | null): string | null {
  if (!href) {
    return null;
  }
  return /^(https?:|mailto:)/i.test(href.trim()) ? href.trim() : null;
}

function link(href: string | null): HTMLElement {
  const safe = safeHref(href);
  if (!safe) {
    return h('span', href ? { class: 'nba-deadlink', title: href } : {});
  }
  return h('a', { href: safe, target: '_blank', rel: 'noopener noreferrer nofollow' });
}

function open(token: Token): HTMLElement {
  if (token.tag === 'a') {
    return link(token.attrGet('href'));
  }
  if (!TAGS.has(token.tag)) {
    return h('span');
  }
  const element = document.createElement(token.tag);
  const start = token.tag === 'ol' ? token.attrGet('start') : null;
  if (start !== null && /^\d+$/.test(start)) {
    element.setAttribute('start', start);
  }
  if (token.tag === 'th') {
    element.setAttribute('scope', 'col');
  }
  if (/^(p|h\d|li|blockquote|td|th)$/.test(token.tag)) {
    element.dir = 'auto';
  }
  const style = token.attrGet('style') ?? '';
  const align = /text-align:(left|right|center)/.exec(style);
  if (align) {
    element.style.textAlign = align[1];
  }
  return element;
}

function leaf(token: Token, into: Node): void {
  switch (token.type) {
    case 'text':
    case 'html_inline':
    case 'html_block':
    case 'text_special':
      into.appendChild(document.createTextNode(token.content));
      break;
    case 'softbreak':
      into.appendChild(document.createTextNode('\n'));
      break;
    case 'hardbreak':
      into.appendChild(h('br'));
      break;
    case 'hr':
      into.appendChild(h('hr'));
      break;
    case 'code_inline':
      into.appendChild(h('code', {}, token.content));
      break;
    case 'code_block':
    case 'fence': {
      const language = token.info.trim().split(/\s+/)[0]?.toLowerCase() ?? '';
      const code = h('code');
      code.append(colour(token.content, language));
      into.appendChild(h('pre', { class: 'nba-code', dir: 'ltr', tabindex: 0 }, code));
      break;
    }
    case 'image': {
      const shown = link(token.attrGet('src'));
      shown.append(`🖼 ${token.content || token.attrGet('src') || 'image'}`);
      into.appendChild(shown);
      break;
    }
    default:
      if (token.content) {
        into.appendChild(document.createTextNode(token.content));
      }
  }
}

function build(tokens: readonly Token[], root: Node): void {
  const stack: Node[] = [root];
  for (const token of tokens) {
    const top = stack[stack.length - 1];
    if (token.type === 'inline') {
      build(token.children ?? [], top);
    } else if (token.nesting === 1) {
      if (token.hidden) {
        stack.push(top);
        continue;
      }
      const element = open(token);
      top.appendChild(element);
      stack.push(element);
    } else if (token.nesting === -1) {
      if (stack.length > 1) {
        stack.pop();
      }
    } else {
      leaf(token, top);
    }
  }
}

/** Markdown as a fragment. */
export function markdown(text: string, env: object = {}): DocumentFragment {
  const fragment = document.createDocumentFragment();
  build(parser.parse(text, env), fragment);
  for (const table of Array.from(fragment.querySelectorAll('table'))) {
    const frame = h('div', { class: 'nba-table', tabindex: 0, role: 'region', 'aria-label': 'Table' });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

/**
 * Markdown that grows. Only the last block of a growing text can still change, so only it is parsed again:
 * the cost of an update depends on the block, not on the answer.
 */
export class Stream {
  readonly element: HTMLElement;
  private text = '';
  private settled = 0;
  private tail: ChildNode[] = [];
  /** Link references of what is settled; one that is still being written is none. */
  private readonly env: { references?: object } = {};

  constructor(className: string) {
    this.element = h('div', { class: className, dir: 'auto' });
  }

  update(text: string): void {
    if (text === this.text) {
      return;
    }
    if (!text.startsWith(this.text.slice(0, this.settled)) || text.length < this.settled) {
      this.element.replaceChildren();
      this.settled = 0;
      this.tail = [];
    }
    this.text = text;
    for (const node of this.tail) {
      node.remove();
    }
    const rest = text.slice(this.settled);
    const cut = lastBlock(rest);
    if (cut > 0) {
      this.element.append(markdown(rest.slice(0, cut), this.env));
      this.settled += cut;
    }
    const fragment = markdown(rest.slice(cut), { references: { ...this.env.references } });
    this.tail = Array.from(fragment.childNodes);
    this.element.append(fragment);
  }
}

/** Where the last top-level block of a text begins (0 when there is only one). */
function lastBlock(text: string): number {
  const tokens = parser.parse(text, {});
  let line = 0;
  for (const token of tokens) {
    if (token.level === 0 && token.nesting >= 0 && token.map) {
      line = token.map[0];
    }
  }
  let at = 0;
  for (let i = 0; i < line; i++) {
    const next = text.indexOf('\n', at);
    if (next < 0) {
      return 0;
    }
    at = next + 1;
  }
  return at;
}
