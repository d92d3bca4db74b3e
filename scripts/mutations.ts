import { parseSync } from "oxc-parser";

/** One small change of a source file, like one that is made by mistake. */
export interface Mutation {
  /** The kind of the mistake. */
  kind: "condition" | "comparison" | "bound" | "await" | "statement" | "order" | "sql";
  start: number;
  end: number;
  replacement: string;
}

/** A node of the syntax tree, in the form of ESTree. */
interface Node {
  type: string;
  start: number;
  end: number;
  [field: string]: unknown;
}

/** The operators that replace each operator: with the other side of its bound, or its opposite. */
const COMPARISONS: Record<string, string[]> = {
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "===": ["!=="],
  "!==": ["==="],
  "+": ["-"],
  "-": ["+"],
};

/** The replacements in SQL, which is in template literals. */
const SQL: [RegExp, string][] = [
  [/ <= /g, " < "],
  [/ < /g, " <= "],
  [/ >= /g, " > "],
  [/ > /g, " >= "],
  [/ <> /g, " = "],
  [/(?<=\b(?:WHERE|AND|ON)\b[^,]*) = /g, " <> "],
  [/\bAND NOT\b/g, "AND"],
  [/\bAND\b(?! NOT)/g, "OR"],
  [/\bOR\b/g, "AND"],
  [/\bNOT EXISTS\b/g, "EXISTS"],
  [/\bIS NULL\b/g, "IS NOT NULL"],
  [/\bIS NOT NULL\b/g, "IS NULL"],
  [/ DESC\b/g, ""],
  [/\bmin\(/g, "max("],
  [/\bmax\(/g, "min("],
];
const IS_SQL = /\b(SELECT|WHERE|AND|OR|UPDATE|INSERT|DELETE|EXISTS|ORDER BY|iif|coalesce)\b/;

/** Calls whose arguments are texts for people. A mistake there breaks no behaviour. */
const WORDS = /^(log|logError|createRoute|operation)$|\.(openapi|describe|meta)$/;

const METHODS = new Map([
  ["every", "some"],
  ["some", "every"],
  ["min", "max"],
  ["max", "min"],
  ["all", "allSettled"],
]);

/**
 * Finds possible mistakes in a source file, in its order: conditions that always or never hold, shifted comparisons
 * and bounds, promises that are not awaited, statements that are missing, the order in a transaction.
 *
 * @throws Error if the source cannot be parsed.
 */
export function mutationsOf(file: string, source: string): Mutation[] {
  const { program, errors } = parseSync(file, source);
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]?.message}`);
  const found: Mutation[] = [];
  const textOf = ({ start, end }: Node) => source.slice(start, end);
  const add = (kind: Mutation["kind"], { start, end }: Node, ...replacements: string[]) => {
    for (const replacement of replacements) found.push({ kind, start, end, replacement });
  };

  const visit = (node: Node, parent: Node | null): void => {
    // Types do not exist when the code runs.
    if (/^TS(?!As|NonNull|Satisfies)/.test(node.type) || node.type === "ImportDeclaration") return;
    const child = (field: string) => node[field] as Node;
    switch (node.type) {
      case "IfStatement":
      case "ConditionalExpression":
        add("condition", child("test"), "true", "false");
        break;
      case "LogicalExpression":
        add("condition", node, textOf(child("left")), textOf(child("right")));
        break;
      case "UnaryExpression":
        if (node.operator === "!") add("condition", node, `(${textOf(child("argument"))})`);
        break;
      case "BinaryExpression": {
        const [left, right] = [child("left"), child("right")];
        const operators = isText(left) || isText(right) ? [] : COMPARISONS[String(node.operator)];
        for (const operator of operators ?? [])
          add("comparison", node, `${textOf(left)} ${operator} ${textOf(right)}`);
        break;
      }
      case "Literal":
        if (typeof node.value === "number" && parent?.type !== "Property")
          add("bound", node, String(node.value === 1 ? 0 : node.value + 1));
        if (typeof node.value === "boolean") add("condition", node, String(!node.value));
        break;
      case "AwaitExpression":
        if (parent?.type === "ExpressionStatement")
          add("await", node, `void ${textOf(child("argument"))}`);
        break;
      case "ExpressionStatement":
        if (
          /^(Call|Await|Assignment)Expression$/.test(child("expression").type) &&
          !isWords(child("expression"))
        )
          add("statement", node, ";");
        break;
      case "ThrowStatement":
        add("statement", node, ";");
        break;
      case "MemberExpression": {
        const property = child("property");
        const other = node.computed ? undefined : METHODS.get(textOf(property));
        if (other && parent?.type === "CallExpression") add("bound", property, other);
        break;
      }
      case "ObjectExpression":
        addOrders(node.properties as Node[]);
        break;
      case "TemplateLiteral":
        if (!IS_SQL.test(textOf(node)) && parent?.type !== "TaggedTemplateExpression") break;
        for (const part of node.quasis as Node[]) addSql(part);
        addDroppedConditions(node);
        break;
    }
    if (isWords(node)) return;
    for (const value of Object.values(node))
      for (const inner of Array.isArray(value) ? value : [value])
        if (isNode(inner)) visit(inner, node);
  };

  const isText = ({ type, value }: Node) =>
    type === "TemplateLiteral" || (type === "Literal" && typeof value === "string" && value !== "");
  const isWords = (node: Node): boolean =>
    node.type === "CallExpression" && WORDS.test(textOf(node.callee as Node).replaceAll(/\s/g, ""));

  /** Statements of a transaction are the properties of an object. */
  const addOrders = (properties: Node[]) => {
    const isStatement = (node: Node) => /\bsql`|\bqb\b/.test(textOf(node));
    for (const [i, first] of properties.entries()) {
      const second = properties[i + 1];
      if (!second || !isStatement(first) || !isStatement(second)) continue;
      const between = source.slice(first.end, second.start);
      const both = { ...first, end: second.end };
      add("order", both, textOf(second) + between + textOf(first));
    }
  };

  const addSql = (part: Node) => {
    const { raw } = part.value as { raw: string };
    const from = source.indexOf(raw, part.start);
    for (const [pattern, replacement] of SQL)
      for (const { index, 0: text } of raw.matchAll(pattern)) {
        const start = from + index;
        found.push({ kind: "sql", start, end: start + text.length, replacement });
      }
  };

  /** Drops each condition of a conjunction in SQL that is an expression: `AND ${…}`. */
  const addDroppedConditions = (template: Node) => {
    const [parts, values] = [template.quasis as Node[], template.expressions as Node[]];
    for (const [i, value] of values.entries()) {
      const before = /\bAND (NOT )?\$\{$/.exec(source.slice(parts[i]?.start, value.start));
      const after = source.slice(value.end + 1);
      if (!before || !/^(\s|\)|`)*(AND|OR|\)|`|LIMIT|ORDER|GROUP|RETURNING|ON)/.test(after))
        continue;
      const start = value.start - before[0].length;
      found.push({ kind: "sql", start, end: value.end + 1, replacement: "" });
    }
  };

  visit(program as unknown as Node, null);
  return found.filter(({ start, end, replacement }) => source.slice(start, end) !== replacement);
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "type" in value && "start" in value;
}
