// Validates the Prometheus operator's objects among the documents on stdin (JSON) by its own schemas, which come with the npm
// package that is installed in the folder given. It prints the kinds that pass, and exits 1 where one does not.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const models = join(process.argv[2], 'node_modules/@kubernetes-models/prometheus-operator');
const documents = JSON.parse(readFileSync(0, 'utf8'));
for (const document of documents.filter((one) => one.apiVersion.startsWith('monitoring.coreos.com/'))) {
  const { apiVersion, kind } = document;
  const model = await import(pathToFileURL(join(models, apiVersion, `${kind}.js`)).href);
  try {
    new model[kind](document).validate();
    console.log(kind);
  } catch (error) {
    console.error(`${kind}/${document.metadata.name}: ${error.message}`);
    process.exitCode = 1;
  }
}
