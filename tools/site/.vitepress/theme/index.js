// The default theme with the reader's fonts, and with diagrams.
import Theme from 'vitepress/theme-without-fonts'
import Diagram from './diagram.js'
import './style.css'

export default {
  extends: Theme,
  enhanceApp({app}) {
    app.component('Diagram', Diagram)
  },
}
