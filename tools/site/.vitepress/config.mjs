import {readFileSync} from 'node:fs'
import {fileURLToPath} from 'node:url'
import {defineConfig} from 'vitepress'
import {plainMarkdown, slugify} from './markdown.mjs'
import {repository, rewriteLinks} from './links.mjs'
import {pagesInOrder} from './sidebar.mjs'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const docs = root + 'docs/'

// GitHub Pages serves a project below its name, for example SITE_BASE=/forgerun.
const base = `/${process.env.SITE_BASE ?? ''}/`.replace(/\/+/g, '/')

const sidebar = pagesInOrder(docs)
const icon = readFileSync(root + 'console/assets/icon.svg', 'base64')

// The folder docs has no node_modules, so imports of compiled pages are resolved here.
const packages = {
  name: 'packages-of-pages',
  enforce: 'pre',
  resolveId(id, importer) {
    if (/^vue(\/|$)/.test(id) && importer?.startsWith(docs)) return this.resolve(id, fileURLToPath(import.meta.url), {skipSelf: true})
  },
}

export default defineConfig({
  title: 'ForgeRun',
  description: 'A job-execution HTTP API with durable synthetic jobs',
  lang: 'en',
  base,
  srcDir: docs,
  outDir: root + 'build/site',
  cacheDir: fileURLToPath(new URL('../node_modules/.cache/vitepress', import.meta.url)),
  head: [['link', {rel: 'icon', href: `data:image/svg+xml;base64,${icon}`}]],
  rewrites: id => id.replace(/(^|\/)README\.md$/, '$1index.md'),
  // Links to localhost are examples. All other dead links fail the build.
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    anchor: {slugify},
    // GitHub shows braces after a heading or a link as text.
    attrs: {disable: true},
    config(md) {
      plainMarkdown(md)
      rewriteLinks(md, {root, docs})
    },
  },
  vite: {
    plugins: [packages],
  },
  themeConfig: {
    // A group has no page of its own; the start page describes the groups.
    nav: sidebar.map(({text, anchor, folder}) => ({text, link: `/#${anchor}`, activeMatch: `^/${folder}/`})),
    sidebar,
    outline: {level: [2, 3]},
    search: {provider: 'local'},
    socialLinks: [{icon: 'github', link: repository}],
    editLink: {pattern: `${repository}/edit/main/docs/:path`, text: 'Edit this page on GitHub'},
  },
})
