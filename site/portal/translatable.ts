import { type ComponentChild, Fragment, h, options } from "preact";

/** A node of the page that is about to be rendered. */
interface Node {
  type: unknown;
  props: { children?: ComponentChild[] | ComponentChild };
}

/** The elements whose text never changes. Their controls are found by the text that stands in them. */
const STATIC = ["label"];

/**
 * Keeps the page up to date while the browser translates it. Translating replaces each text node by elements of the
 * browser. Preact would go on changing the node that is gone, and insert others before it, so the reader would see the
 * state of before the translation (https://github.com/facebook/react/issues/11538). Elements stay. So the text of an
 * element is set as a whole, and a text beside elements gets one of its own, which its key replaces when it changes.
 */
export function keepTranslatable(): void {
  options.vnode = (vnode) => {
    const { type, props } = vnode as Node;
    const isElement = typeof type === "string" && !STATIC.includes(type);
    if (props?.children == null || !(isElement || type === Fragment)) return;
    const children = Array.isArray(props.children) ? props.children : [props.children];
    const shown = children.filter((child) => child != null && typeof child !== "boolean");
    if (isElement && shown.length > 0 && shown.every(isText))
      Object.assign(props, { textContent: shown.join(""), children: undefined });
    else props.children = children.map(wrapText);
  };
}

function isText(child: ComponentChild): boolean {
  return typeof child === "string" || typeof child === "number";
}

/** Gives a text that is not blank an element. */
function wrapText(child: ComponentChild): ComponentChild {
  if (!isText(child) || String(child).trim() === "") return child;
  const textContent = String(child);
  return h("span", { key: textContent, textContent });
}
