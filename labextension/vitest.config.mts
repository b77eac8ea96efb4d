import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    setupFiles: ['./vitest.setup.ts'],
    include: ['src/**/__tests__/*.spec.ts'],
    server: {
      deps: {
        inline: [
          /@jupyterlab\//,
          /@jupyter\/ydoc/,
          /@lumino\//,
          /@jupyter\/web-components/,
          /@jupyter\/react-components/,
          /@microsoft\//
        ]
      }
    }
  }
});
