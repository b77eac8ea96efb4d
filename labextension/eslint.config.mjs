import jupyter from '@jupyter/eslint-plugin';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib', 'node_modules', '.yarn', '*.mjs', '*.mts', 'vitest.setup.ts', 'style'] },
  ...tseslint.configs.recommended,
  jupyter.configs?.['recommended'] ?? {},
  {
    files: ['src/**/*.ts'],
    languageOptions: { parserOptions: { project: 'tsconfig.eslint.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      curly: ['error', 'all'],
      eqeqeq: 'error',
      'no-restricted-properties': [
        'error',
        { property: 'innerHTML', message: 'Text goes in as text.' },
        { property: 'outerHTML', message: 'Text goes in as text.' },
        { property: 'insertAdjacentHTML', message: 'Text goes in as text.' }
      ],
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/consistent-type-imports': 'error'
    }
  },
  // the drawing knows no application to translate it; the plugin's parts are needed at once
  { files: ['src/draw/**', 'src/panel.ts'], rules: { 'jupyter/no-untranslated-string': 'off' } },
  { files: ['src/index.ts'], rules: { 'jupyter/prefer-lazy-imports': 'off' } },
  { files: ['src/**/__tests__/**'], rules: { 'no-restricted-properties': 'off' } }
);
