/** Syntax colours: highlight.js's scopes become elements here, so that no markup is ever parsed. */

import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import ini from 'highlight.js/lib/languages/ini';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import r from 'highlight.js/lib/languages/r';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import type { Emitter, HLJSOptions } from 'highlight.js';

/** highlight.js tells what begins and ends; this builds elements of it. */
class Elements implements Emitter {
  readonly root = document.createDocumentFragment();
  private readonly stack: Node[] = [this.root];

  private get top(): Node {
    return this.stack[this.stack.length - 1];
  }

  addText(text: string): void {
    if (text) {
      this.top.appendChild(document.createTextNode(text));
    }
  }

  startScope(name: string): void {
    const span = document.createElement('span');
    span.className = `hljs-${name.split('.')[0].replace(/[^\w-]/g, '')}`;
    this.top.appendChild(span);
    this.stack.push(span);
  }

  endScope(): void {
    if (this.stack.length > 1) {
      this.stack.pop();
    }
  }

  openNode(name: string): void {
    this.startScope(name);
  }

  closeNode(): void {
    this.endScope();
  }

  __addSublanguage(emitter: Elements): void {
    this.top.appendChild(emitter.root);
  }

  finalize(): void {
    this.stack.length = 1;
  }

  toHTML(): string {
    return '';
  }
}

const LANGUAGES = { bash, css, diff, ini, javascript, json, markdown, python, r, sql, typescript, xml, yaml };

const highlighter = hljs.newInstance();
highlighter.configure({ __emitter: Elements } as unknown as Partial<HLJSOptions>);
for (const [name, language] of Object.entries(LANGUAGES)) {
  highlighter.registerLanguage(name, language);
}

const BY_SUFFIX: Record<string, string> = {
  py: 'python',
  pyi: 'python',
  sh: 'bash',
  toml: 'ini',
  cfg: 'ini',
  ini: 'ini',
  js: 'javascript',
  mjs: 'javascript',
  jsx: 'javascript',
  ts: 'typescript',
  tsx: 'typescript',
  json: 'json',
  ipynb: 'json',
  md: 'markdown',
  yml: 'yaml',
  yaml: 'yaml',
  html: 'xml',
  xml: 'xml',
  svg: 'xml',
  css: 'css',
  sql: 'sql',
  r: 'r'
};

/** Colouring costs time; longer texts stay plain. */
const LIMIT = 40_000;

export function languageOf(path: string): string {
  const dot = path.lastIndexOf('.');
  return dot < 0 ? '' : (BY_SUFFIX[path.slice(dot + 1).toLowerCase()] ?? '');
}

/** Text in colours as a fragment; plain when the language is unknown or the text is long. */
export function colour(text: string, language: string): DocumentFragment {
  if (!language || text.length > LIMIT || !highlighter.getLanguage(language)) {
    const fragment = document.createDocumentFragment();
    fragment.append(text);
    return fragment;
  }
  const done = highlighter.highlight(text, { language, ignoreIllegals: true });
  const { root } = done._emitter as unknown as Elements;
  if (done.errorRaised || root.textContent !== text) {
    root.replaceChildren(text);
  }
  return root;
}
