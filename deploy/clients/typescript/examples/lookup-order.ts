// One definition of a tool. Run it, and it prints the file for `tools.d/`.

import { pathToFileURL } from "node:url";
import * as z from "zod";
import { defineTool, toolsFile } from "../src/zod.js";

export const lookupOrder = defineTool({
  name: "lookup_order",
  description: "Looks an order up by the number on the customer's receipt, and returns where it is.",
  input: z.object({
    // What a schema cannot say, `refine` here, is not in the file; the server's own check still holds it.
    order_number: z
      .string()
      .refine((number) => number.startsWith("A-"))
      .describe("The number on the receipt."),
    position: z.int().optional().describe("One line of the order, from 1."),
  }),
  url: process.env["TOOL_URL"] ?? "https://shop.example.com/tools/lookup-order",
  settings: { timeout: "5s", annotations: { read_only: true } },
});

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  process.stdout.write(toolsFile([lookupOrder], { owner: "orders" }));
}
