import tailwind from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

// The built page is committed: file names are stable, and the same sources give the same bytes. The server puts the
// digest of all files into their path.
export default defineConfig({
  base: './',
  plugins: [react(), tailwind()],
  build: {
    outDir: '../internal/dash/page/dist',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      output: { entryFileNames: '[name].js', chunkFileNames: '[name].js', assetFileNames: '[name][extname]' },
    },
  },
  server: {
    proxy: Object.fromEntries(
      ['/dashboard/api', '/dashboard/v1', '/docs', '/openapi.json'].map((path) => [path, 'http://127.0.0.1:8080']),
    ),
  },
  test: { environment: 'happy-dom', include: ['src/**/*.test.{ts,tsx}'] },
})
