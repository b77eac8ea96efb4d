/** Making elements. Text only ever goes in as text. */

type Child = Node | string | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);

/** An element: `on…` keys are listeners, `class` and others are attributes, children are nodes or text. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Value> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (typeof value === 'function') {
      element.addEventListener(name.slice(2), value as EventListener);
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  for (const child of children) {
    if (child) {
      element.append(child);
    }
  }
  return element;
}

/** Sets text only when it differs (no needless layout, no repeated announcement). */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function show(element: HTMLElement, visible: boolean): void {
  if (element.hidden === visible) {
    element.hidden = !visible;
  }
}

/** Puts `wanted` into `parent` in this order, moving as little as possible; what is not wanted goes. */
export function arrange(parent: HTMLElement, wanted: readonly HTMLElement[]): void {
  const keep = new Set<Node>(wanted);
  for (const child of Array.from(parent.childNodes)) {
    if (!keep.has(child)) {
      child.remove();
    }
  }
  let at: ChildNode | null = parent.firstChild;
  for (const element of wanted) {
    if (at === element) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(element, at);
    }
  }
}

let counter = 0;

/** An id for `aria-labelledby` and the like, unique in the page. */
export function uid(): string {
  counter += 1;
  return `nba-${counter}-${Math.random().toString(36).slice(2, 7)}`;
}

/** Whether typing into this element is typing text. */
export function isTyping(element: Element | null): boolean {
  if (!element) {
    return false;
  }
  if (element instanceof HTMLTextAreaElement || (element as HTMLElement).isContentEditable) {
    return true;
  }
  return element instanceof HTMLInputElement && !['checkbox', 'radio', 'button', 'submit'].includes(element.type);
}

const SVG = 'http://www.w3.org/2000/svg';

const PATHS: Record<string, string> = {
  read: 'M3 2.5h6.5L13 6v7.5H3zM9.5 2.5V6H13',
  write: 'M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4zM9.6 4.2l2.2 2.2',
  search: 'M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM10 10l3.4 3.4',
  shell: 'M2 3h12v10H2zM4.5 6l2 2-2 2M8 10.5h3.5',
  code: 'M5.5 4.5L2 8l3.5 3.5M10.5 4.5L14 8l-3.5 3.5',
  globe: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM2 8h12M8 2c2.2 2 2.2 10 0 12M8 2c-2.2 2-2.2 10 0 12',
  agent: 'M8 2.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM3 13.5c.6-5 9.4-5 10 0',
  list: 'M6 4h8M6 8h8M6 12h8M2.5 4h.5M2.5 8h.5M2.5 12h.5',
  ask: 'M6 6a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M8 11.6v.4M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z',
  plan: 'M4 2.5h8v11H4zM6 5.5h4M6 8h4M6 10.5h2.5',
  notebook: 'M4 2.5h9v11H4zM4 2.5v11M2.5 5h1.5M2.5 8h1.5M2.5 11h1.5M7 6h3.5',
  tool: 'M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M3.4 12.6l1.4-1.4M11.2 4.8l1.4-1.4',
  check: 'M3 8.5l3.2 3.2L13 5',
  cross: 'M4 4l8 8M12 4l-8 8',
  forbid: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM3.8 3.8l8.4 8.4',
  warn: 'M8 2.5L14.5 13.5h-13zM8 6.5v3.4M8 11.6v.4',
  info: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 7.2v3.8M8 4.8v.4',
  stop: 'M4 4h8v8H4z',
  retry: 'M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3',
  shrink: 'M2 5l3-0V2M14 5h-3V2M2 11h3v3M14 11h-3v3',
  think: 'M8 2.5c-3 0-5 2-5 4.3 0 1.6.9 2.7 2 3.5V13h4.5v-1.6c2.2-.3 3.5-2.2 3.5-4.6 0-2.3-2-4.3-5-4.3z',
  swap: 'M3 5.5h9M9.5 3l2.5 2.5L9.5 8M13 10.5H4M6.5 8L4 10.5 6.5 13'
};

/** A small line icon in the colour of the text; hidden from screen readers. */
export function icon(name: string): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'nba-icon');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('focusable', 'false');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name] ?? PATHS.tool);
  svg.append(path);
  return svg;
}

/** 5 s, 1 min 5 s, 2 h 3 min. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Short times with a tenth, for tool calls. */
export function brief(seconds: number): string {
  return seconds < 10 ? `${seconds.toFixed(1)} s` : duration(seconds);
}

/** 950, 1.2k, 34k, 1.2M. */
export function count(n: number): string {
  if (n < 1000) {
    return String(Math.round(n));
  }
  if (n < 1_000_000) {
    return n < 10_000 ? `${(n / 1000).toFixed(1).replace(/\.0$/, '')}k` : `${Math.round(n / 1000)}k`;
  }
  return `${(n / 1_000_000).toFixed(1).replace(/\.0$/, '')}M`;
}
