import {h, onMounted, ref, watch} from 'vue'
import {useData} from 'vitepress'
// A script of its own that sets a global name: the build need not read its 2.5 MB.
import script from '@mermaid-js/tiny/dist/mermaid.tiny.js?url'

// Wide diagrams are scrolled: scaled to the page, their text could not be read.
const natural = {
  flowchart: {useMaxWidth: false, rankSpacing: 25, nodeSpacing: 30},
  sequence: {useMaxWidth: false},
  state: {useMaxWidth: false},
  themeVariables: {fontSize: '13px'},
}

let loading
let count = 0

function load() {
  loading ??= new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement('script'), {src: script, onerror: reject})
    element.onload = () => resolve(window.mermaid)
    document.head.append(element)
  })
  return loading
}

// Mermaid measures text, so it draws in the browser. Until then, and without scripts, the source is shown.
export default {
  props: {source: {type: String, required: true}},
  setup(props) {
    const {isDark} = useData()
    const source = decodeURIComponent(props.source)
    const drawn = ref('')
    const draw = async () => {
      const mermaid = await load()
      mermaid.initialize({startOnLoad: false, securityLevel: 'strict', theme: isDark.value ? 'dark' : 'neutral', ...natural})
      drawn.value = (await mermaid.render(`diagram-${count++}`, source)).svg
    }
    onMounted(draw)
    watch(isDark, draw)
    return () => drawn.value ? h('div', {class: 'diagram', tabindex: 0, innerHTML: drawn.value}) : h('pre', {class: 'diagram'}, source)
  },
}
