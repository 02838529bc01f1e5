export default { test: { globals: true, include: ["*.test.js"], setupFiles: ["forgerun/vitest"] } };
