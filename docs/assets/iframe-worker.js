/* Browsers refuse workers to pages opened from the disk. The site's search needs one, so there it runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.appendChild(frame)
      const inside = (this.inside = frame.contentWindow)
      const deliver = (target, data) => target.dispatchEvent(new MessageEvent("message", { data }))
      inside.postMessage = (data) => setTimeout(deliver, 0, this, data)
      const script = inside.document.createElement("script")
      this.loaded = new Promise((resolve) => (script.onload = resolve))
      this.postMessage = (data) => this.loaded.then(() => deliver(inside, data))
      script.src = url
      inside.document.body.appendChild(script)
    }
  }
}
