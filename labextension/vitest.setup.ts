// jsdom has no drag events; Lumino's widgets name the class when they are loaded.
globalThis.DragEvent ??= class extends MouseEvent {} as typeof DragEvent;
// nor does it know media queries
window.matchMedia ??= () => ({ matches: false, addEventListener() {}, removeEventListener() {} }) as never;
