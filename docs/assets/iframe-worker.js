// A browser starts no worker from a file. Where the site is opened from its files, search runs in a
// hidden frame instead, with what it uses of a worker: messages in both directions and scripts.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      const load = (url) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.onload = done;
          script.onerror = failed;
          script.src = url;
          inside.document.body.appendChild(script);
        });
      inside.importScripts = (...urls) => urls.reduce((all, url) => all.then(() => load(url)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame = frame;
      this.ready = load(address);
    }

    postMessage(data) {
      const { contentWindow } = this.frame;
      this.ready.then(() => contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
