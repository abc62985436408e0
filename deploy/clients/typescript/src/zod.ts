// A tool as one definition: a file for Sortie's `tools.d/`, and the check of its arguments by the same schema.

import * as z from "zod";

export interface Definition<I extends z.ZodObject> {
  name: string;
  /** What the model reads of it. */
  description: string;
  input: I;
  url: string;
  /** The wire profile; envelope-v1 where it is left out. */
  profile?: string;
  /** Any other key of a tool in Sortie's configuration: `secret`, `timeout`, `policy`, `annotations`, … */
  settings?: Readonly<Record<string, unknown>>;
}

export interface DefinedTool<I extends z.ZodObject> {
  readonly name: string;
  /** The entry of `tools`. */
  readonly entry: Readonly<Record<string, unknown>>;
  /** The arguments as the schema has them; throws zod's error where they do not fit. */
  parse(args: unknown): z.output<I>;
}

/** The schema cannot be written into a file for Sortie. */
export class SchemaError extends Error {
  override readonly name = "SchemaError";
}

/** The profile whose parameters are a part of JSON Schema only. */
const SUBSET_PROFILE = "envelope-v1";
const SUBSET_TYPES = new Set(["object", "string", "number", "integer", "boolean", "array"]);

/** Defines a tool. Throws SchemaError where its arguments cannot be described in the profile's terms. */
export function defineTool<I extends z.ZodObject>(definition: Definition<I>): DefinedTool<I> {
  const { name, description, input, url, profile, settings } = definition;
  const parameters = schemaOf(name, input);
  if ((profile ?? SUBSET_PROFILE) === SUBSET_PROFILE) subset(name, parameters, "");
  const named = profile === undefined ? {} : { profile };
  const entry = { name, description, ...named, url, parameters, ...settings };
  return { name, entry, parse: (args) => input.parse(args) };
}

/** The text of a file for `tools.d/`: JSON, which is YAML too. */
export function toolsFile(
  tools: readonly DefinedTool<z.ZodObject>[],
  top: { owner?: string; runbook?: string } = {},
): string {
  return `${JSON.stringify({ ...top, tools: tools.map((tool) => tool.entry) }, null, 2)}\n`;
}

type Schema = Record<string, unknown>;

function schemaOf(name: string, input: z.ZodObject): Schema {
  try {
    const { $schema: _, ...schema } = z.toJSONSchema(input, { io: "input", target: "draft-2020-12" }) as Schema;
    return schema;
  } catch (cause) {
    const what = cause instanceof Error ? cause.message : String(cause);
    throw new SchemaError(`${name}: ${what}`, { cause });
  }
}

/** Refuses what the subset does not take; bounds that every safe integer keeps are left out, since zod adds them unasked. */
function subset(tool: string, schema: Schema, path: string): void {
  if (schema["minimum"] === Number.MIN_SAFE_INTEGER) delete schema["minimum"];
  if (schema["maximum"] === Number.MAX_SAFE_INTEGER) delete schema["maximum"];
  const refuse = (keyword: string, what: string): never => {
    const cure = `say it in the description, or name a profile that takes it (profile: "bare-v1")`;
    throw new SchemaError(`${tool}: ${path}/${keyword}: ${what} is not taken by ${SUBSET_PROFILE}; ${cure}`);
  };
  for (const [keyword, value] of Object.entries(schema)) {
    switch (keyword) {
      case "type":
        if (typeof value !== "string" || !SUBSET_TYPES.has(value)) refuse(keyword, `the type ${JSON.stringify(value)}`);
        break;
      case "enum":
        if (!(value as unknown[]).every((one) => typeof one === "string")) refuse(keyword, "a value that is no text");
        break;
      case "properties":
        for (const [name, property] of Object.entries(value as Record<string, Schema>)) {
          subset(tool, property, `${path}/properties/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`);
        }
        break;
      case "items":
        subset(tool, value as Schema, `${path}/items`);
        break;
      case "required":
      case "description":
        break;
      default:
        refuse(keyword, `the keyword ${keyword}`);
    }
  }
  if (schema["type"] === undefined) refuse("type", "a value of any type");
}
