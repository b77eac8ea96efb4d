// The live view's module: one ESM file with its styles inside. The licences of what is bundled travel in the same wheel.
import { build } from 'esbuild';

const notice =
  '/*! nbagent, BSD-3-Clause. Includes markdown-it and its parts (MIT) and highlight.js (BSD-3-Clause); ' +
  'their licence texts: static/third-party-licenses.json of the JupyterLab extension. */';

await build({
  entryPoints: ['src/view.ts'],
  outfile: '../nbagent/notebook/static/view.js',
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  charset: 'utf8',
  legalComments: 'none',
  banner: { js: notice },
  loader: { '.css': 'text' },
  logLevel: 'warning'
});
