"""A bounded sample of a collection: does the policy fit its documents?"""
