import {readFileSync} from 'node:fs'
import {fileURLToPath} from 'node:url'
import {defineConfig} from 'vitepress'
import {plainMarkdown, slugify} from './markdown.mjs'
import {repository, rewriteLinks} from './links.mjs'
import {pagesInOrder} from './sidebar.mjs'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const docs = root + 'docs/'

// GitHub Pages serves a project below its name: SITE_BASE=/forgerun
const base = `/${process.env.SITE_BASE ?? ''}/`.replace(/\/+/g, '/')

const sidebar = pagesInOrder(docs)
const icon = readFileSync(root + 'console/assets/icon.svg', 'base64')

// docs has no packages of its own: what compiled pages import is found from here.
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
  // Addresses of the reader's own machine are examples; all other dead links fail the build.
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    anchor: {slugify},
    // On GitHub braces after a heading or a link are text.
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
    // The groups have no pages of their own: the start page describes what is in each.
    nav: sidebar.map(({text, anchor, folder}) => ({text, link: `/#${anchor}`, activeMatch: `^/${folder}/`})),
    sidebar,
    outline: {level: [2, 3]},
    search: {provider: 'local'},
    socialLinks: [{icon: 'github', link: repository}],
    editLink: {pattern: `${repository}/edit/main/docs/:path`, text: 'Edit this page on GitHub'},
  },
})
