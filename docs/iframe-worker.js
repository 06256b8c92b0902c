// Search in a site that is opened from files: browsers start no Worker from file://, so a hidden frame
// stands in for it. Material names this class; its own copy would be fetched from the network.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
        }
      })
      // A worker's postMessage goes to its owner, and its importScripts loads one script after another.
      const begin = `
        postMessage = (data) => parent.postMessage(data, "*")
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
          const script = document.createElement("script")
          script.src = url
          script.onload = done
          document.body.appendChild(script)
        })), Promise.resolve())`
      const page = this.frame.contentDocument
      this.ready = new Promise((done) => this.frame.addEventListener("load", done, { once: true }))
      page.open()
      page.write(`<body><script>${begin}</script><script src="${url}"></script></body>`)
      page.close()
    }

    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      )
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker
}
